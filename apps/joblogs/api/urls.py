"""URLs of the REST API below /api/v1."""

from __future__ import annotations

from apps.access.api.routers import ApiRouter, api_path
from apps.joblogs.api.downloads import BuildDownloadView, RunDownloadView
from apps.joblogs.api.groups import ErrorGroupViewSet
from apps.joblogs.api.policies import LogPolicyViewSet
from apps.joblogs.api.search import LogSearchView
from apps.joblogs.api.streams import (
    BuildFirstErrorView,
    BuildLogView,
    RunFirstErrorView,
    RunLogView,
)

router = ApiRouter()
router.register("log-errors", ErrorGroupViewSet, basename="log-error")
router.register("log-policies", LogPolicyViewSet, basename="log-policy")
urlpatterns = [
    api_path("logs", LogSearchView.as_view(), name="logs"),
    api_path("runs/<int:run>/logs", RunLogView.as_view(), name="run-logs"),
    api_path("runs/<int:run>/logs/download", RunDownloadView.as_view(), name="run-logs-download"),
    api_path(
        "runs/<int:run>/logs/first-error", RunFirstErrorView.as_view(), name="run-logs-first-error"
    ),
    api_path("builds/<int:build>/logs", BuildLogView.as_view(), name="build-logs"),
    api_path(
        "builds/<int:build>/logs/download", BuildDownloadView.as_view(), name="build-logs-download"
    ),
    api_path(
        "builds/<int:build>/logs/first-error",
        BuildFirstErrorView.as_view(),
        name="build-logs-first-error",
    ),
    *router.urls,
]
