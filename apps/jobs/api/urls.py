"""URL patterns of jobs, runs and hosts below /api/v1."""

from __future__ import annotations

from apps.access.api.routers import ApiRouter, api_path
from apps.jobs.api.hosts import JobPlacementView, RunHostViewSet
from apps.jobs.api.links import JobLinkViewSet
from apps.jobs.api.runs import RunViewSet
from apps.jobs.api.schedules import JobScheduleView, PlannedRunViewSet, SchedulePreviewView
from apps.jobs.api.views import JobViewSet

router = ApiRouter()
router.register("jobs", JobViewSet, basename="job")
router.register("runs", RunViewSet, basename="run")
# Not "hosts": that name is used for crawled sites.
router.register("run-hosts", RunHostViewSet, basename="run-host")
router.register("job-links", JobLinkViewSet, basename="job-link")
router.register("planned-runs", PlannedRunViewSet, basename="planned-run")
urlpatterns = [
    *router.urls,
    api_path("jobs/<int:job>/placement", JobPlacementView.as_view(), name="job-placement"),
    api_path("jobs/schedule/preview", SchedulePreviewView.as_view(), name="job-schedule-preview"),
    api_path("jobs/<int:job>/schedule", JobScheduleView.as_view(), name="job-schedule"),
]
