"""REST addresses below /api/v1."""

from __future__ import annotations

from apps.access.api.routers import api_path
from apps.queuestats.api.series import PointsView, SeriesView
from apps.queuestats.api.views import RunCountersView, RunFailuresViewSet

failures = RunFailuresViewSet.as_view({"get": "list"})
urlpatterns = [
    api_path("runs/<int:run>/counters", RunCountersView.as_view(), name="run-counters"),
    api_path("runs/<int:run>/failures", failures, name="run-failures"),
    api_path("projects/<int:pk>/series", SeriesView.as_view(), name="project-series"),
    api_path("projects/<int:pk>/series/points", PointsView.as_view(), name="project-series-points"),
]
