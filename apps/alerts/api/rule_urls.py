"""REST URLs of alert rules, below /api/v1."""

from __future__ import annotations

from apps.access.api.routers import api_path
from apps.alerts.api.mutes import MuteRuleView, UnmuteRuleView
from apps.alerts.api.rules import AlertPreviewView, AlertRulesView, AlertSourcesView

urlpatterns = [
    api_path("alert-rules", AlertRulesView.as_view(), name="alert-rules"),
    api_path("alert-rules/mute", MuteRuleView.as_view(), name="alert-rules-mute"),
    api_path("alert-rules/unmute", UnmuteRuleView.as_view(), name="alert-rules-unmute"),
    api_path("alert-rules/preview", AlertPreviewView.as_view(), name="alert-rules-preview"),
    api_path("alert-sources", AlertSourcesView.as_view(), name="alert-sources"),
]
