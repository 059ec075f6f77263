"""REST addresses below /api/v1."""

from __future__ import annotations

from apps.access.api.routers import api_path
from apps.joblogs.api.views import BuildDownloadView, BuildLogView, RunDownloadView, RunLogView

urlpatterns = [
    api_path("runs/<int:run>/logs", RunLogView.as_view(), name="run-logs"),
    api_path("runs/<int:run>/logs/download", RunDownloadView.as_view(), name="run-logs-download"),
    api_path("builds/<int:build>/logs", BuildLogView.as_view(), name="build-logs"),
    api_path(
        "builds/<int:build>/logs/download", BuildDownloadView.as_view(), name="build-logs-download"
    ),
]
