"""URL patterns of projects, builds, images and deliveries below /api/v1."""

from __future__ import annotations

from apps.access.api.routers import ApiRouter
from apps.projects.api.builds import BuildViewSet, ImageViewSet
from apps.projects.api.deliveries import DeliveryViewSet
from apps.projects.api.views import ProjectViewSet

router = ApiRouter()
router.register("projects", ProjectViewSet, basename="project")
router.register("builds", BuildViewSet, basename="build")
router.register("images", ImageViewSet, basename="image")
router.register("deliveries", DeliveryViewSet, basename="delivery")

urlpatterns = router.urls
