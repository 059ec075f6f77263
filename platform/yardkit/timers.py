"""Periodic work inside a daemon's loop."""

from __future__ import annotations

import time
from collections.abc import Callable


class Timers:
    """Named periodic timers, polled by the loop that does the work. Not thread-safe.

    Args:
        monotonic: returns seconds from a clock that never goes back; injected by tests.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._next: dict[str, float] = {}

    def due(self, name: str, every_seconds: float) -> bool:
        """Return True at most once in ``every_seconds``, and at the first call."""
        now = self._monotonic()
        if now < self._next.get(name, now):
            return False
        self._next[name] = now + every_seconds
        return True

    def left(self, name: str) -> float:
        """Return the seconds until ``name`` is due again; 0.0 when it is due now or unknown."""
        now = self._monotonic()
        return max(0.0, self._next.get(name, now) - now)

    def hasten(self, name: str) -> None:
        """Make ``name`` due at the next poll."""
        self._next.pop(name, None)

    def postpone(self, name: str, seconds: float) -> None:
        """Make ``name`` due ``seconds`` from now, whatever its interval is."""
        self._next[name] = self._monotonic() + seconds
