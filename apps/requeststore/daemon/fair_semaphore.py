"""Sharing of the fetcher's capacity between bizzes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass


@dataclass(slots=True)
class _Waiting:
    name: str
    wanted: int
    weight: int
    given: asyncio.Future[int]


class FairSemaphore:
    """Weighted fair semaphore over bizzes. Belongs to one event loop.

    Waiters get slots in proportion to priority + 1, so that none starves. A biz that was idle has
    a credit of at most ``total`` slots.
    """

    def __init__(self, total: int) -> None:
        self.free = self._total = total
        self._waiting: list[_Waiting] = []
        # Slots granted to each biz, divided by its weight; the waiter with the least is next.
        self._had: dict[str, float] = {}
        self._level = 0.0

    async def get(self, name: str, wanted: int, *, priority: int) -> int:
        """Wait for slots; return 1 to ``wanted``. Release them by ``put``."""
        self._had[name] = max(self._had.get(name, 0.0), self._level - self._total)
        waiting = _Waiting(name, wanted, 1 + priority, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._share()
        try:
            return await waiting.given
        except asyncio.CancelledError:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            elif waiting.given.done() and not waiting.given.cancelled():
                self.put(waiting.given.result())
            raise

    def put(self, number: int) -> None:
        """Release slots."""
        self.free += number
        self._share()

    def forget(self, name: str) -> None:
        """Remove a biz."""
        self._had.pop(name, None)

    def _share(self) -> None:
        while self.free > 0 and self._waiting:
            first = min(self._waiting, key=lambda one: self._had.get(one.name, 0.0))
            self._waiting.remove(first)
            if first.given.done():
                continue
            # While others wait, no biz gets all slots at once.
            most = self.free if not self._waiting else max(1, self.free // 2)
            given = min(first.wanted, most)
            self.free -= given
            self._level = self._had.get(first.name, 0.0)
            self._had[first.name] = self._level + given / first.weight
            first.given.set_result(given)
