"""Time as a thing to hand in, so that tests can turn it."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """What code asks instead of the ``time`` module."""

    def now(self) -> datetime:
        """The wall clock, aware, in UTC."""

    def time(self) -> float:
        """The wall clock as seconds since 1970; it may jump either way."""

    def monotonic(self) -> float:
        """Seconds since some moment; never goes back. For durations."""


class SystemClock:
    """The machine's own clocks."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock that stands still until a test moves it."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._lock = threading.Lock()
        self._now = start.astimezone(UTC)
        self._monotonic = 1000.0

    def now(self) -> datetime:
        return self._now

    def time(self) -> float:
        return self._now.timestamp()

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Time passes, on both clocks."""
        if seconds < 0:
            raise ValueError("time does not pass backwards; jump() moves the wall clock")
        with self._lock:
            self._now += timedelta(seconds=seconds)
            self._monotonic += seconds

    def jump(self, seconds: float) -> None:
        """Somebody sets the wall clock: only that one moves, either way."""
        with self._lock:
            self._now += timedelta(seconds=seconds)
