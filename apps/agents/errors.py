"""Errors of this app."""

from __future__ import annotations

from apps.access.errors import DomainError


class AgentsError(DomainError):
    """Base class of this app's refusals."""

    code = "agents_error"


class AllocationRefused(AgentsError):
    """The run gets no agents; the text says why."""

    code = "allocation_refused"


class NoAgentFree(AllocationRefused):
    """No agent is free at the moment; one may be starting."""

    code = "no_agent_free"


class AgentNotAlive(AgentsError):
    """The agent is not alive, so it cannot be asked to exit."""

    code = "agent_silent"
