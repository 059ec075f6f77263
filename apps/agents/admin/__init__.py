"""The admin of this app."""

from apps.agents.admin.agents import AgentAdmin
from apps.agents.admin.allocations import AllocationAdmin

__all__ = ["AgentAdmin", "AllocationAdmin"]
