"""Waiting and active downloads of one biz."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from apps.requeststore.daemon.transports import Done, PageTransport, TransportClosed
from apps.requeststore.daemon.work import LeasedRequest, RequestFailure, Result

NO_TIME: Final = RequestFailure("its turn did not come before the deadline", untried=True)
_REOPEN_SECONDS: Final = 2.0


class Downloads:
    """Runs at most ``concurrency`` downloads at a time. Belongs to one event loop.

    Args:
        make_way: opens the downloader; may raise ``BadSetting``.
        ended: called once for each offered request, unless ``abandon`` has returned it.
        shares_agents: the downloader holds the biz's only allocation, so two must not be open.
    """

    def __init__(
        self,
        *,
        make_transport: Callable[[Done], PageTransport],
        concurrency: int,
        ended: Done,
        shares_agents: bool = False,
    ) -> None:
        self.shares_agents = shares_agents
        self._transport = make_transport(self._done)
        self._concurrency = concurrency
        self._ended = ended
        self._waiting: deque[LeasedRequest] = deque()
        self._under_way: set[LeasedRequest] = set()
        self._opening: asyncio.Task[None] | None = None
        self._is_open = False
        self._problem = ""

    @property
    def problem(self) -> str:
        """Return why downloads do not progress; "" normally."""
        return self._problem or self._transport.problem

    @property
    def count(self) -> int:
        """Return the number of unfinished downloads."""
        return len(self._waiting) + len(self._under_way)

    def offer(self, works: Iterable[LeasedRequest]) -> None:
        """Download these as soon as there is room."""
        self._waiting.extend(works)
        if self._is_open:
            self._advance()
        elif self._opening is None:
            self._opening = asyncio.create_task(self._open())

    async def _open(self) -> None:
        while not self._is_open:
            try:
                await self._transport.open()
            except TransportClosed as error:
                self._problem = str(error)
                self._drop_late()
                await asyncio.sleep(_REOPEN_SECONDS)
            else:
                self._is_open = True
                self._problem = ""
        self._advance()

    def _drop_late(self) -> None:
        """End requests whose deadline passes while nothing can be downloaded."""
        now = asyncio.get_running_loop().time()
        late = [work for work in self._waiting if work.expires <= now]
        for work in late:
            self._waiting.remove(work)
            self._ended(work, RequestFailure(self._problem, untried=True))

    def _advance(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._waiting and len(self._under_way) < self._concurrency:
            work = self._waiting.popleft()
            if work.expires <= now:
                self._ended(work, NO_TIME)
            else:
                self._under_way.add(work)
                self._transport.begin(work)

    def _done(self, work: LeasedRequest, result: Result) -> None:
        if work in self._under_way:
            self._under_way.discard(work)
            try:
                self._ended(work, result)
            finally:
                # An error of one download must not block the others.
                self._advance()

    def withdraw(self) -> list[LeasedRequest]:
        """Return the requests whose download has not started; the caller owns them again."""
        waiting = list(self._waiting)
        self._waiting.clear()
        return waiting

    def abandon(self) -> list[LeasedRequest]:
        """Return all unfinished requests; their downloads report nothing any more."""
        left = [*self.withdraw(), *self._under_way]
        self._under_way.clear()
        return left

    async def close(self) -> None:
        """Close the downloader at once."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        await self._transport.close()
