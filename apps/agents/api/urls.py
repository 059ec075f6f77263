from __future__ import annotations

from apps.access.api.routers import ApiRouter, api_path
from apps.agents.api.hosts import HostRuleViewSet, HostViewSet
from apps.agents.api.views import (
    AgentSamplesViewSet,
    AgentViewSet,
    AllocationPreviewView,
    AllocationViewSet,
    RunAgentsView,
)

router = ApiRouter()
router.register("agents", AgentViewSet, basename="agent")
router.register("agents/allocations", AllocationViewSet, basename="allocation")
router.register("hosts", HostViewSet, basename="host")
router.register("host-rules", HostRuleViewSet, basename="host-rule")
urlpatterns = [
    *router.urls,
    api_path(
        "agents/allocations/preview", AllocationPreviewView.as_view(), name="allocation-preview"
    ),
    api_path(
        "agents/<int:agent>/samples",
        AgentSamplesViewSet.as_view({"get": "list"}),
        name="agent-samples",
    ),
    api_path("runs/<int:run>/agents", RunAgentsView.as_view(), name="run-agents"),
]
