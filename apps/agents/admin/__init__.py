from apps.agents.admin.agents import AgentAdmin
from apps.agents.admin.allocations import AllocationAdmin
from apps.agents.hosts.admin import HostRuleAdmin, HostStateAdmin

__all__ = ["AgentAdmin", "AllocationAdmin", "HostRuleAdmin", "HostStateAdmin"]
