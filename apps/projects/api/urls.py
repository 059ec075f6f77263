"""Addresses under /api/v1/."""

from __future__ import annotations

from apps.access.api.routers import Router
from apps.projects.api.views import ProjectViewSet

router = Router()
router.register("projects", ProjectViewSet, basename="project")

urlpatterns = router.urls
