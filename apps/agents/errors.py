"""What the center and the agents' pages refuse."""

from __future__ import annotations

from apps.access.errors import DomainError


class AgentsError(DomainError):
    """Base of this app's refusals."""

    code = "agents_error"


class AllocationRefused(AgentsError):
    """No agents for this run; the text says why."""

    code = "allocation_refused"


class NoAgentFree(AllocationRefused):
    """Just now; one may be starting."""

    code = "no_agent_free"


class AgentSilent(AgentsError):
    """An agent that is not alive cannot be told to exit."""

    code = "agent_silent"
