"""REST URLs below /api/v1."""

from __future__ import annotations

from apps.access.api.routers import api_path
from apps.queuestats.api.queues import QueuesView
from apps.queuestats.api.rates import JobCountersView, JobSeriesView, RunSeriesView
from apps.queuestats.api.series import (
    PlatformPointsView,
    PlatformSeriesView,
    PointsView,
    SeriesView,
)
from apps.queuestats.api.views import (
    RunCountersView,
    RunFailuresViewSet,
    RunStatsView,
    RunStatsViewSet,
)

failures = RunFailuresViewSet.as_view({"get": "list"})
all_stats = RunStatsViewSet.as_view({"get": "list"})
urlpatterns = [
    api_path("runs/<int:run>/counters", RunCountersView.as_view(), name="run-counters"),
    api_path("runs/<int:run>/failures", failures, name="run-failures"),
    api_path("runs/<int:run>/stats", RunStatsView.as_view(), name="run-stats"),
    api_path("run-stats", all_stats, name="run-stats-list"),
    api_path("runs/<int:run>/series", RunSeriesView.as_view(), name="run-series"),
    api_path("jobs/<int:job>/counters", JobCountersView.as_view(), name="job-counters"),
    api_path("jobs/<int:job>/series", JobSeriesView.as_view(), name="job-series"),
    api_path("queues", QueuesView.as_view(), name="queues"),
    api_path("series", PlatformSeriesView.as_view(), name="platform-series"),
    api_path("series/points", PlatformPointsView.as_view(), name="platform-series-points"),
    api_path("projects/<int:pk>/series", SeriesView.as_view(), name="project-series"),
    api_path("projects/<int:pk>/series/points", PointsView.as_view(), name="project-series-points"),
]
