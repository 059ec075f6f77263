"""REST addresses below /api/v1."""

from __future__ import annotations

from apps.access.api.routers import Router
from apps.seeds.api.resources import ResourcePoolViewSet, ResourceViewSet

router = Router()
router.register("resource-pools", ResourcePoolViewSet, basename="resource-pool")
router.register("resources", ResourceViewSet, basename="resource")
urlpatterns = router.urls
