"""URLs of the REST API below /api/v1."""

from __future__ import annotations

from apps.access.api.routers import ApiRouter
from apps.seeds.api.operations import OperationViewSet
from apps.seeds.api.resources import ResourcePoolViewSet, ResourceViewSet
from apps.seeds.api.views import FrontierViewSet

router = ApiRouter()
router.register("frontiers", FrontierViewSet, basename="frontier")
router.register("seed-operations", OperationViewSet, basename="seed-operation")
router.register("resource-pools", ResourcePoolViewSet, basename="resource-pool")
router.register("resources", ResourceViewSet, basename="resource")
urlpatterns = router.urls
