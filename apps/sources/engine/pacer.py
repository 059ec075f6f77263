"""Leaky bucket without a burst: a fixed number of requests a second (seed S0.40).

One pacer belongs to one account at one API, however many of its sources are harvested here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Pacer:
    """Used inside one event loop."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._next = 0.0
        self._paused_until = 0.0

    async def turn(self, rate: float) -> None:
        """Wait until the next request may go; those who wait go in the order they came.

        ``rate`` is a number a second; infinity waits for pauses only.
        """
        while True:
            at = max(self._clock(), self._next)
            self._next = at + 1.0 / rate
            # Not for a moment too short: the loop's timer may fire a clock tick early.
            while (left := at - self._clock()) > 0:
                await asyncio.sleep(left)
            if at >= self._paused_until:
                return

    def pause(self, seconds: float) -> None:
        """Hold back every request for this long, as the API demanded; those waiting too."""
        self._paused_until = max(self._paused_until, self._clock() + seconds)
        self._next = max(self._next, self._paused_until)
