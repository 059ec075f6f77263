"""Whether a chained run still has an agent to be bound to (seed S1.49)."""

from __future__ import annotations

from collections.abc import Iterable

from yardspider.errors import RunFailed


class AgentWatch:
    """Knows which of a chained run's agents the center calls dead, and since when.

    A page of a chained run cannot be had from another agent: the cookies are with the one that
    began. So a request that is bound to a dead agent is retried to that agent, which may come
    back, and fails when its retries are used up; requests that are bound to others go on. When
    no agent is left at all there is nothing to go on with.

    Args:
        seconds: how long all of them must have been dead.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._agents: set[str] = set()
        self._dead_since: dict[str, float] = {}

    def allocated(self, agents: Iterable[str]) -> None:
        """The run's agents."""
        self._agents.update(agents)

    def alive(self, agent: str) -> None:
        """It answered, or was sent something; "" stands for any of them."""
        if agent:
            self._agents.add(agent)
            self._dead_since.pop(agent, None)
        else:
            self._dead_since.clear()

    def dead(self, agent: str, now: float) -> None:
        """The center skipped a request for it; "" stands for all of them.

        Raises ``RunFailed`` when each has been called dead for long enough, with no sign of life
        since. Only a skip says so: an agent of which nobody has spoken may well be back.
        """
        for name in {agent} if agent else self._agents:
            self._dead_since.setdefault(name, now)
        dead = self._dead_since
        everyone = bool(dead) and self._agents <= dead.keys()
        if everyone and now - max(dead.values()) >= self._seconds:
            names = ", ".join(sorted(self._agents))
            raise RunFailed(
                f"no agent of this chained run has been alive for {self._seconds:g} s ({names}); "
                "its pages cannot be fetched by other agents"
            )
