"""Collects the replies of center and agents while a run waits for its agents."""

from __future__ import annotations

from yardkit.protocol import Allocated, DownloaderReady
from yardspider.errors import RunFailed
from yardspider.transports.base import AgentAllocation


class AllocationWait:
    """Collects the center's choice and the confirmation of each chosen agent, in any order.

    Args:
        asked: number of agents the job wants; 0 leaves it to the policy.
        seconds: how long the run waits, for the error texts.
    """

    def __init__(self, *, asked: int, seconds: float) -> None:
        self._asked = asked
        self._seconds = seconds
        self._allocated: Allocated | None = None
        self._confirmed: dict[str, None] = {}

    def take(self, message: Allocated | DownloaderReady) -> None:
        """Note a reply. Raises ``RunFailed`` when there is no agent, or one refuses."""
        if isinstance(message, DownloaderReady):
            if not message.ok:
                raise RunFailed(f"agent {message.agent} cannot serve this run: {message.reason}")
            self._confirmed[message.agent] = None
            return
        if message.error or not message.agents:
            raise RunFailed(f"the center gave no agents: {message.error or 'none is alive'}")
        self._allocated = message

    @property
    def is_complete(self) -> bool:
        """Whether every chosen agent has confirmed."""
        return self._allocated is not None and not self._missing()

    def _missing(self) -> list[str]:
        chosen = self._allocated.agents if self._allocated is not None else []
        return [agent for agent in chosen if agent not in self._confirmed]

    def result(self) -> AgentAllocation:
        """Return the agents, when all have confirmed or time is up. Raises ``RunFailed`` for
        none.
        """
        if self._allocated is None:
            raise RunFailed(
                f"no center answered within {self._seconds:g} s; is run_center running?"
            )
        missing = self._missing()
        agents = [agent for agent in self._allocated.agents if agent not in missing]
        if not agents:
            raise RunFailed(
                f"none of {len(missing)} allocated agents confirmed within {self._seconds:g} s"
            )
        warnings = [self._allocated.warning] if self._allocated.warning else []
        if missing:
            warnings.append(f"no word from {', '.join(missing)}; going on without")
        elif len(agents) < self._asked and not warnings:
            warnings.append(f"{len(agents)} agents allocated where {self._asked} were asked for")
        return AgentAllocation(agents, "; ".join(warnings))
