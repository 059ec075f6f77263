"""REST addresses below /api/v1."""

from __future__ import annotations

from apps.access.api.routers import Router, api_path
from apps.agents.api.views import AgentViewSet, RunAgentsView

router = Router()
router.register("agents", AgentViewSet, basename="agent")
urlpatterns = [
    *router.urls,
    api_path("runs/<int:run>/agents", RunAgentsView.as_view(), name="run-agents"),
]
