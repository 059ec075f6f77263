"""Settings of drf-spectacular: the OpenAPI schema and its viewers."""

from __future__ import annotations

from typing import Any, Final

SPECTACULAR_SETTINGS: Final[dict[str, Any]] = {
    "TITLE": "Crawlyard",
    "DESCRIPTION": "Everything a page can do, over REST.",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SWAGGER_UI_DIST": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "SCHEMA_PATH_PREFIX": r"/api/v1",
    # Collapsed: rendering hundreds of operations takes a browser many seconds.
    "SWAGGER_UI_SETTINGS": {"deepLinking": True, "docExpansion": "none", "filter": True},
    # Names of choices shared by several fields; otherwise they would be generated.
    "ENUM_NAME_OVERRIDES": {
        "RunStateEnum": "apps.jobs.states.RunState",
        "RunOutcomeEnum": "apps.jobs.states.RunOutcome",
        "AskEnum": "apps.jobs.states.RunAsk",
        "BuildStateEnum": "apps.projects.states.BuildState",
        "BuildStepEnum": "apps.projects.states.BuildStep",
        "DeliverySourceEnum": "apps.projects.states.DeliverySource",
        "ImageSourceEnum": "apps.projects.states.ImageSource",
        "DownloaderKindEnum": "apps.jobs.models.DownloaderKind",
        "DownloadPolicyEnum": "apps.jobs.models.DownloadPolicy",
        "ReplayMissingEnum": "apps.jobs.states.ReplayMissing",
        "TlsVersionEnum": "apps.jobs.models.options.TlsVersion",
        "AgentModeEnum": "apps.agents.states.AgentMode",
        "ImportModeEnum": "apps.jobs.services.portable.ImportMode",
        "ItemStateEnum": "apps.routing.states.ItemState",
        "SeedStateEnum": "apps.seeds.api.call_serializers.STATES",
        "HarvestStateEnum": "apps.sources.states.HarvestState",
        "IncidentStateEnum": "apps.alerts.states.IncidentState",
        "SeverityEnum": "apps.alerts.states.Severity",
        "ChannelKindEnum": "apps.alerts.states.ChannelKind",
        "NoticeKindEnum": "apps.alerts.states.NoticeKind",
        "NoticeStateEnum": "apps.alerts.states.NoticeState",
        "NoticeProblemEnum": "apps.alerts.states.NoticeProblem",
        "DaemonStateEnum": "apps.runtime.states.DaemonState",
        "DeadLetterStateEnum": "apps.runtime.states.DeadLetterState",
        "SeriesKindEnum": "apps.queuestats.models.SeriesKind",
    },
    "SERVE_PERMISSIONS": ["rest_framework.permissions.IsAuthenticated"],
}
