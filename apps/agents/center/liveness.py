"""Which agents are alive, by this process's own monotonic clock."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping

from yardkit.protocol import Heartbeat
from yardkit.topology import AGENT_ALIVE_SECONDS

# What an agent accepts as its own id, so that a queue and a database column can hold it.
_AGENT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def is_agent_id(text: str) -> bool:
    """Whether an agent can have this id."""
    return _AGENT_ID.fullmatch(text) is not None


class Liveness:
    """Last time each agent was heard of. Thread-safe."""

    def __init__(
        self, monotonic: Callable[[], float], alive_seconds: float = AGENT_ALIVE_SECONDS
    ) -> None:
        self._monotonic = monotonic
        self._alive_seconds = alive_seconds
        self._lock = threading.Lock()
        self._seen: dict[str, float] = {}
        self._unsaved: dict[str, Heartbeat] = {}

    def seen(self, agent: str) -> None:
        """A sign of life that carries no figures (a registration)."""
        with self._lock:
            self._seen[agent] = self._monotonic()

    def restore(self, ages: Mapping[str, float]) -> None:
        """Take over what an earlier center knew: seconds since each agent was last heard of.

        Without it every agent looks dead to a center that has just started. What this process has
        heard itself stays.
        """
        now = self._monotonic()
        with self._lock:
            for agent, age in ages.items():
                self._seen.setdefault(agent, now - max(0.0, age))

    def heartbeat(self, message: Heartbeat) -> None:
        """A heartbeat; its figures wait for ``take_unsaved``."""
        with self._lock:
            self._seen[message.agent] = self._monotonic()
            self._unsaved[message.agent] = message

    def is_alive(self, agent: str) -> bool:
        """Heard of less than 11 s ago (seed S1.38)."""
        seen = self._seen.get(agent)
        return seen is not None and self._monotonic() - seen < self._alive_seconds

    def alive(self) -> list[str]:
        """Every living agent."""
        with self._lock:
            return [agent for agent in self._seen if self.is_alive(agent)]

    def take_unsaved(self) -> list[Heartbeat]:
        """The latest heartbeat of each agent since the last call."""
        with self._lock:
            unsaved, self._unsaved = self._unsaved, {}
        return list(unsaved.values())

    def put_back(self, unsaved: Iterable[Heartbeat]) -> None:
        """These could not be saved; ``take_unsaved`` brings them again unless newer ones come."""
        with self._lock:
            for message in unsaved:
                self._unsaved.setdefault(message.agent, message)

    def forget_silent(self, seconds: float) -> None:
        """Drop agents not heard of for so long, so that the table cannot grow for ever."""
        limit = self._monotonic() - seconds
        with self._lock:
            self._seen = {agent: seen for agent, seen in self._seen.items() if seen > limit}
