"""Whether a chained run still has a living agent."""

from __future__ import annotations

from collections.abc import Iterable

from yardspider.errors import RunFailed


class AgentWatch:
    """Tracks which agents of a chained run the center reports as dead, and since when.

    A page of a chained run cannot be fetched by another agent, which lacks the cookies. A request
    bound to a dead agent is retried there, since the agent may come back, and fails when its
    retries are used up; requests bound to other agents go on. The run fails when no agent is left.

    Args:
        seconds: how long all of them must have been dead.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._agents: set[str] = set()
        self._dead_since: dict[str, float] = {}

    def allocated(self, agents: Iterable[str]) -> None:
        """Add agents of the run."""
        self._agents.update(agents)

    def alive(self, agent: str) -> None:
        """Note a sign of life; "" stands for any agent."""
        if agent:
            self._agents.add(agent)
            self._dead_since.pop(agent, None)
        else:
            self._dead_since.clear()

    def dead(self, agent: str, now: float) -> None:
        """Note that the center skipped a request for this agent; "" stands for all of them.

        Raises ``RunFailed`` when each has been reported dead for long enough, without a
        sign of life since. Only a skip reports it: an agent without requests may well be
        back.
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
