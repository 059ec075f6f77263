"""REST addresses below /api/v1."""

from __future__ import annotations

from apps.access.api.routers import Router
from apps.jobs.api.views import JobViewSet, RunViewSet

router = Router()
router.register("jobs", JobViewSet, basename="job")
router.register("runs", RunViewSet, basename="run")
urlpatterns = router.urls
