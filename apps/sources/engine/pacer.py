"""Leaky bucket without a burst: a fixed number of requests a second.

One pacer belongs to one account at one API and is shared by its sources in this process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Pacer:
    """Not thread-safe: use it inside one event loop."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._next = 0.0
        self._paused_until = 0.0

    async def turn(self, rate: float) -> None:
        """Wait for the next slot, in first-in, first-out order.

        ``rate`` is requests a second; infinity only waits for pauses.
        """
        while True:
            at = max(self._clock(), self._next)
            self._next = at + 1.0 / rate
            # Loop until it is due: the timer may fire a clock tick early.
            while (left := at - self._clock()) > 0:
                await asyncio.sleep(left)
            if at >= self._paused_until:
                return

    def pause(self, seconds: float) -> None:
        """Delay all requests by this many seconds, including those already waiting."""
        self._paused_until = max(self._paused_until, self._clock() + seconds)
        self._next = max(self._next, self._paused_until)
