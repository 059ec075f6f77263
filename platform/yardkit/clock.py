"""Injectable clocks."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Replaces the ``time`` module in code under test."""

    def now(self) -> datetime:
        """Return the wall clock, aware, in UTC."""

    def time(self) -> float:
        """Return Unix seconds; may jump either way."""

    def monotonic(self) -> float:
        """Return seconds that never go back, for durations."""


class SystemClock:
    """The machine's clocks."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock that moves only when a test moves it."""

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
        """Let time pass on both clocks."""
        if seconds < 0:
            raise ValueError("time does not pass backwards; jump() moves the wall clock")
        with self._lock:
            self._now += timedelta(seconds=seconds)
            self._monotonic += seconds

    def jump(self, seconds: float) -> None:
        """Set the wall clock only, forward or back."""
        with self._lock:
            self._now += timedelta(seconds=seconds)
