"""Which agents are alive, by this process's monotonic clock."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping

from yardkit.protocol import Heartbeat
from yardkit.topology import AGENT_ALIVE_SECONDS

# Limit of remembered heartbeat numbers: agents without a name get a new id at each start.
MOST_HEARD = 100_000


class Liveness:
    """Last sign of life of each agent. Thread-safe."""

    def __init__(
        self, monotonic: Callable[[], float], alive_seconds: float = AGENT_ALIVE_SECONDS
    ) -> None:
        self._monotonic = monotonic
        self._alive_seconds = alive_seconds
        self._lock = threading.Lock()
        self._seen: dict[str, float] = {}
        self._unsaved: dict[str, Heartbeat] = {}
        # (incarnation, number of the last heartbeat) of each agent, and the number of missing ones.
        self._heard: dict[str, tuple[str, int]] = {}
        self._missed = 0
        # Agents counted as living in this generation, and when the first of them may be dead.
        self._living: set[str] = set()
        self._generation = 0
        self._look_at = math.inf

    def seen(self, agent: str, age_seconds: float = 0.0) -> None:
        """Note a sign of life without figures (a registration), ``age_seconds`` ago."""
        with self._lock:
            seen = self._monotonic() - age_seconds
            self._note(agent, max(seen, self._seen.get(agent, seen)))

    def restore(
        self, ages: Mapping[str, float], heard: Mapping[str, tuple[str, int]] | None = None
    ) -> None:
        """Load the state of an earlier center: seconds since each agent's last heartbeat, and
        (incarnation, number) of that heartbeat.

        Otherwise every agent would look dead after a restart of the center. Heartbeats that this
        process has received stay.
        """
        now = self._monotonic()
        with self._lock:
            for agent, age in ages.items():
                if agent not in self._seen:
                    self._note(agent, now - max(0.0, age))
            self._heard = {**(heard or {}), **self._heard}

    def heartbeat(self, message: Heartbeat) -> None:
        """Note a heartbeat; its figures wait for ``take_unsaved``."""
        with self._lock:
            self._note(message.agent, self._monotonic())
            self._unsaved[message.agent] = message
            self._count(message)

    def _count(self, message: Heartbeat) -> None:
        """Count heartbeats missing between this one and the one before."""
        incarnation, last = self._heard.get(message.agent, ("", 0))
        if incarnation != message.boot:
            last = 0
        if message.heartbeats > last:
            self._missed += message.heartbeats - last - 1
            self._heard[message.agent] = (message.boot, message.heartbeats)

    def take_missed(self) -> int:
        """Return the number of heartbeats found missing since the last call."""
        with self._lock:
            missed, self._missed = self._missed, 0
        return missed

    def _note(self, agent: str, seen: float) -> None:
        self._seen[agent] = seen
        if agent not in self._living:
            self._living.add(agent)
            self._generation += 1
            self._look_at = min(self._look_at, seen + self._alive_seconds)

    def is_alive(self, agent: str) -> bool:
        """Return whether the agent was heard of less than 11 s ago (seed S1.38)."""
        seen = self._seen.get(agent)
        return seen is not None and self._monotonic() - seen < self._alive_seconds

    def generation(self) -> int:
        """Return a number that changes whenever an agent comes to life or dies.

        Cheap: agents are scanned only when the oldest sign of life of the last scan may have
        expired.
        """
        if self._monotonic() >= self._look_at:
            with self._lock:
                self._expire()
        return self._generation

    def _expire(self) -> None:
        dead = {agent for agent in self._living if not self.is_alive(agent)}
        if dead:
            self._living -= dead
            self._generation += 1
        oldest = min((self._seen[agent] for agent in self._living), default=math.inf)
        self._look_at = oldest + self._alive_seconds

    def alive(self) -> list[str]:
        """Return every living agent."""
        with self._lock:
            return [agent for agent in self._seen if self.is_alive(agent)]

    def take_unsaved(self) -> list[Heartbeat]:
        """Return the latest heartbeat of each agent since the last call."""
        with self._lock:
            unsaved, self._unsaved = self._unsaved, {}
        return list(unsaved.values())

    def put_back(self, unsaved: Iterable[Heartbeat]) -> None:
        """Return heartbeats that could not be saved; newer ones take precedence."""
        with self._lock:
            for message in unsaved:
                self._unsaved.setdefault(message.agent, message)

    def forget_silent(self, seconds: float) -> None:
        """Forget agents silent for ``seconds``, to bound the table."""
        limit = self._monotonic() - seconds
        with self._lock:
            self._seen = {agent: seen for agent, seen in self._seen.items() if seen > limit}
            # An agent that comes back must be known, or all of its earlier
            # heartbeats would count as missing.
            if len(self._heard) > MOST_HEARD:
                heard = self._heard.items()
                self._heard = {agent: one for agent, one in heard if agent in self._seen}
