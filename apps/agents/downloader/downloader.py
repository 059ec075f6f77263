"""One run's isolated slot inside an agent (seed S1.25)."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable

from apps.agents.downloader.commands import Work
from apps.agents.downloader.fetchers import Equipment
from apps.agents.downloader.results import ResultSender, make_result
from apps.agents.downloader.vitals import Counters, Rate
from yardkit import failpoints
from yardkit.clock import Clock
from yardkit.cutting import TextFilter
from yardkit.fetching import Fetched
from yardkit.protocol import (
    DownloaderSettings,
    DownloadResult,
    FailureKind,
    ProtocolError,
    RequestItem,
    decode_request,
)

logger = logging.getLogger(__name__)


class Downloader:
    """Own connections, own cookies, at most ``settings.concurrency`` downloads at once.

    Raises ``ValueError`` for settings that make no sense.
    """

    def __init__(
        self,
        *,
        run: int,
        settings: DownloaderSettings,
        results: ResultSender,
        counters: Counters,
        rate: Rate,
        clock: Clock,
        equipment: Equipment,
    ) -> None:
        self.run = run
        self.settings = settings
        self._texts = TextFilter(settings)
        self._fetcher = equipment.open_fetcher(settings)
        self._results = results
        self._counters = counters
        self._rate = rate
        self._clock = clock
        self._waiting: deque[tuple[RequestItem, Work]] = deque()
        self._workers: set[asyncio.Task[None]] = set()
        self._used_at = clock.monotonic()
        self._released = False

    @property
    def busy(self) -> bool:
        """Something waits or is being downloaded."""
        return bool(self._waiting or self._workers)

    def idle_seconds(self) -> float:
        """How long nothing has been asked of it; 0 while it works."""
        return 0.0 if self.busy else self._clock.monotonic() - self._used_at

    def submit(self, items: Iterable[RequestItem], work: Work) -> None:
        """Download these as places become free."""
        self._used_at = self._clock.monotonic()
        self._waiting.extend((item, work) for item in items)
        missing = min(len(self._waiting), self.settings.concurrency - len(self._workers))
        for _ in range(missing):
            task = asyncio.ensure_future(self._download_waiting())
            self._workers.add(task)
            task.add_done_callback(self._workers.discard)

    def forget_waiting(self) -> int:
        """Start nothing more; what waits stays unacknowledged. Returns how many that were."""
        count = len(self._waiting)
        self._waiting.clear()
        return count

    async def settle(self, seconds: float) -> None:
        """Wait for running downloads, up to so long."""
        if self._workers:
            await asyncio.wait(list(self._workers), timeout=seconds)

    async def release(self) -> None:
        """The run needs nothing more: what waits or runs is discarded, and counted."""
        self._released = True
        discarded = list(self._waiting)
        self._waiting.clear()
        for item, work in discarded:
            work.report(item.host)
            work.settle()
        self._counters.discarded += len(discarded)
        await self.close()

    async def close(self) -> None:
        """Cancel what runs, close every connection."""
        for task in list(self._workers):
            task.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        await self._fetcher.close()

    async def _download_waiting(self) -> None:
        while self._waiting:
            await self._results.room()
            if not self._waiting:
                return
            item, work = self._waiting.popleft()
            # Judged once more: it may have waited long for its place (seed S1.32).
            if self._clock.time() >= work.void_at:
                self._counters.expired += 1
                work.report(item.host)
                work.settle()
                continue
            try:
                result, fetched = await self._download(item)
            except asyncio.CancelledError:
                if self._released:
                    self._counters.discarded += 1
                    work.report(item.host)
                    work.settle()
                raise
            work.report(item.host, fetched)
            self._results.add(work, result)
            self._used_at = self._clock.monotonic()

    async def _download(self, item: RequestItem) -> tuple[DownloadResult, Fetched | None]:
        """The answer for the run, and what the host said."""
        try:
            request = decode_request(item.request)
        except ProtocolError as error:
            return failed(item, FailureKind.BAD_REQUEST, str(error)), None
        fetched = None
        try:
            failpoints.hit("agent.before_fetch")
            fetched = await self._fetcher.fetch(request)
            if item.id >= 0:
                # A center's own requests are numbered below zero: robots.txt stays as it is.
                fetched = await self._texts.apply(fetched)
            result = await make_result(item.id, item.attempt, fetched)
        except Exception as error:  # the last guard: one request must not end its worker
            logger.exception("run %d: a download failed in an unforeseen way", self.run)
            result = failed(item, FailureKind.BAD_REQUEST, f"{type(error).__name__}: {error}")
        self._counters.finished += 1
        self._rate.add()
        return result, fetched


def failed(item: RequestItem, failure: FailureKind, error: str) -> DownloadResult:
    """The answer to a request that could not be downloaded at all."""
    return DownloadResult(item.id, item.attempt, "", 0, [], b"", failure, error)
