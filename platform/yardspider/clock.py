"""The engine's clock, and the interface for a test's own."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Alarm:
    """Wake the engine's loop. ``ring`` may be called at any time, also before the wait."""

    __slots__ = ("_future", "_rung")

    def __init__(self) -> None:
        self._rung = False
        self._future: asyncio.Future[None] | None = None

    @property
    def rung(self) -> bool:
        return self._rung

    def ring(self) -> None:
        """Wake the waiting loop; only from the loop's own thread."""
        self._rung = True
        self._finish()

    async def wait(self, seconds: float | None) -> bool:
        """Return True when rung, False after ``seconds``; None waits without limit."""
        if not self._rung:
            loop = asyncio.get_running_loop()
            self._future = loop.create_future()
            # A timer instead of wait_for: it makes no task, and this runs for every answer.
            timer = None if seconds is None else loop.call_later(max(0.0, seconds), self._finish)
            try:
                await self._future
            finally:
                self._future = None
                if timer is not None:
                    timer.cancel()
        rung, self._rung = self._rung, False
        return rung

    def _finish(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)


class EngineClock(Protocol):
    """Monotonic seconds from any start, and a way to wait for them."""

    def now(self) -> float: ...

    async def wait(self, alarm: Alarm, until: float | None) -> None:
        """Return when the alarm rings, at the latest at ``until``."""


class MonotonicClock:
    """The clock of real runs."""

    def now(self) -> float:
        return time.monotonic()

    async def wait(self, alarm: Alarm, until: float | None) -> None:
        await alarm.wait(None if until is None else until - self.now())
