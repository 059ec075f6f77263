"""REST addresses below /api/v1."""

from __future__ import annotations

from apps.access.api.routers import Router
from apps.seeds.api.operations import OperationViewSet
from apps.seeds.api.views import FrontierViewSet

router = Router()
router.register("frontiers", FrontierViewSet, basename="frontier")
router.register("seed-operations", OperationViewSet, basename="seed-operation")
urlpatterns = router.urls
