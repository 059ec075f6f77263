"""Data of the overview and of the page of a run, in a fixed number of queries."""

from apps.dashboard.queries.home import HomeView, RunRow, home_view
from apps.dashboard.queries.runs import AgentShare, CommandStatus, RunView, agent_shares, run_view

__all__ = [
    "AgentShare",
    "CommandStatus",
    "HomeView",
    "RunRow",
    "RunView",
    "agent_shares",
    "home_view",
    "run_view",
]
