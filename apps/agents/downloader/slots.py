"""The downloaders of one agent by run, and the resting ones."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from apps.agents.downloader.downloader import Downloader
from apps.agents.downloader.roster import Roster
from yardkit.protocol import AllocateDownloader, DownloaderSettings

logger = logging.getLogger(__name__)

# Limit of resting runs; the settings of each are a few hundred bytes.
MOST_RESTING: Final = 10_000


class Slots:
    """Makes, finds and releases downloaders.

    An idle downloader is released with its connections, cookies and file, but its
    settings stay in memory until the run releases its agents: a slow run with many agents uses each
    of them less often than that. After a restart the agent has forgotten a resting one: it answers
    that the downloader is missing, the run retries, and the center, with which the agent has
    registered, allocates it again.

    Args:
        make: raises ``ValueError`` for invalid settings.
        roster: keeps the allocations on disk.
    """

    def __init__(
        self,
        make: Callable[[int, DownloaderSettings], Downloader],
        idle_seconds: float,
        roster: Roster,
    ) -> None:
        self.active: dict[int, Downloader] = {}
        self._make = make
        self._idle_seconds = idle_seconds
        self._roster = roster
        self._allocations: dict[int, AllocateDownloader] = {}
        self._resting: dict[int, AllocateDownloader] = {}
        self._ending: set[asyncio.Future[None]] = set()

    async def load(self, now: float) -> None:
        """Restore the downloaders that an earlier process of this agent has saved.

        ``now`` in Unix seconds becomes the time of their allocation.
        """
        for loaded in await self._roster.load():
            allocation = msgspec.structs.replace(loaded, allocated_at=now)
            try:
                self._open(allocation)
            except ValueError as error:
                await self._roster.refuse(allocation.run, f"bad downloader settings: {error}")
        if self.active:
            logger.info("%d downloaders restored", len(self.active))

    def open(self, allocation: AllocateDownloader) -> bool:
        """Make the downloader of a run; False if it exists. Raises ``ValueError``.

        A restarted run has another answer queue: it gets a new downloader, and that of its earlier
        execution ends with its cookies.
        """
        run = allocation.run
        if run in self.active:
            if self._allocations[run].reply_to == allocation.reply_to:
                return False
            ending = asyncio.ensure_future(self._end(run, self._detach(run)))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
        self._open(allocation)
        self._resting.pop(allocation.run, None)
        self._roster.keep(allocation)
        return True

    def _open(self, allocation: AllocateDownloader) -> None:
        self.active[allocation.run] = self._make(allocation.run, allocation.settings)
        self._allocations[allocation.run] = allocation

    def find(self, run: int) -> Downloader | None:
        """Return the downloader of a run; a resting one is made again."""
        downloader = self.active.get(run)
        if downloader is None and run in self._resting:
            self.open(self._resting[run])
            downloader = self.active[run]
        return downloader

    def release(self, run: int) -> Awaitable[None]:
        """Detach the downloader of a run at once; await the result for its end."""
        self._resting.pop(run, None)
        return self._end(run, self._detach(run))

    async def _end(self, run: int, downloader: Downloader | None) -> None:
        if downloader is not None:
            await downloader.release()
        await self._roster.settle(run)

    async def sweep(self) -> None:
        """Let idle downloaders rest."""
        for run, downloader in list(self.active.items()):
            if downloader.idle_seconds() < self._idle_seconds or run not in self.active:
                continue
            logger.info("run %d: downloader idle for %.0f s, released", run, self._idle_seconds)
            self._resting[run] = self._allocations[run]
            await self._end(run, self._detach(run))
        while len(self._resting) > MOST_RESTING:
            del self._resting[next(iter(self._resting))]
        await self._roster.flush()

    def _detach(self, run: int) -> Downloader | None:
        self._roster.forget(run)
        self._allocations.pop(run, None)
        return self.active.pop(run, None)
