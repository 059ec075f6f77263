"""One run's isolated downloader inside an agent."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

import msgspec

from apps.agents.downloader.bodies import BodyStore
from apps.agents.downloader.commands import DownloadWork
from apps.agents.downloader.fetchers import Equipment
from apps.agents.downloader.kept import PageKeeper
from apps.agents.downloader.kept.spool import Reason
from apps.agents.downloader.kept.warc import PageDownload
from apps.agents.downloader.results import ResultSender, make_result
from apps.agents.downloader.vitals import AgentCounters, Rate
from yardkit import failpoints
from yardkit.broker import Outgoing
from yardkit.clock import Clock
from yardkit.fetched import BodyNotStored, Fetched
from yardkit.protocol import (
    MAX_CONTENT_BYTES,
    Dispatched,
    DownloaderSettings,
    DownloadRequest,
    DownloadResult,
    DownloadsHeld,
    FailureKind,
    ProtocolError,
    RequestItem,
    decode_request,
    encode,
)
from yardkit.text_filters import TextFilter

logger = logging.getLogger(__name__)

REDIALLING = "the agent's line is redialled first"
# The first ``result_version`` with bodies in the object store, and with several in one object.
STORED_BODIES_VERSION: Final = 3
JOINED_BODIES_VERSION: Final = 4
# A notice is repeated this long before it expires.
_RENEW_NOTICE_SECONDS = 15.0


class PendingRequest:
    """A request that waits or is being downloaded. Copies of it are merged into it."""

    __slots__ = ("held_attempt", "held_until", "item", "void_at", "work")

    def __init__(self, item: RequestItem, work: DownloadWork) -> None:
        self.item = item
        self.work = work
        self.void_at = work.void_at
        # What the run knows: this attempt is held, until this monotonic time.
        self.held_attempt = 0
        self.held_until = 0.0

    @property
    def key(self) -> tuple[str, int]:
        return self.work.reply_to, self.item.id

    def renew(self, item: RequestItem, work: DownloadWork) -> None:
        """Answer the later attempt: the run has given the earlier one up."""
        if item.attempt > self.item.attempt:
            self.item = msgspec.structs.replace(self.item, attempt=item.attempt)
        self.void_at = max(self.void_at, work.void_at)


class Downloader:
    """Own connections, own cookies, at most ``settings.concurrency`` downloads at once.

    Raises ``ValueError`` for invalid settings.
    """

    def __init__(
        self,
        *,
        run: int,
        settings: DownloaderSettings,
        results: ResultSender,
        counters: AgentCounters,
        rate: Rate,
        clock: Clock,
        equipment: Equipment,
        bodies: BodyStore,
        keeper: PageKeeper | None = None,
    ) -> None:
        self.run = run
        self.settings = settings
        self._texts = TextFilter(settings)
        # A run that does not read them gets every body through the broker.
        self._bodies = bodies if settings.result_version >= STORED_BODIES_VERSION else None
        self._fetcher = equipment.open_fetcher(
            settings, partial(bodies.sink, run) if self._bodies is not None else None
        )
        self._results = results
        self._counters = counters
        self._rate = rate
        self._clock = clock
        self._equipment = equipment
        self._keeper = keeper
        self._waiting: deque[PendingRequest] = deque()
        # By (answer queue, id of the request): what waits or is being downloaded.
        self._pending: dict[tuple[str, int], PendingRequest] = {}
        self._workers: set[asyncio.Task[None]] = set()
        self._used_at = clock.monotonic()
        self._released = False

    @property
    def busy(self) -> bool:
        """Whether requests wait or are being downloaded."""
        return bool(self._waiting or self._workers)

    def idle_seconds(self) -> float:
        """Return the time since the last request; 0 while busy."""
        return 0.0 if self.busy else self._clock.monotonic() - self._used_at

    def submit(self, items: Iterable[RequestItem], work: DownloadWork) -> None:
        """Download these as slots become free."""
        self._used_at = self._clock.monotonic()
        for item in items:
            key = (work.reply_to, item.id)
            pending = self._pending.get(key)
            if pending is not None:
                # The delivery of the first copy stays unacknowledged until both are answered.
                pending.renew(item, work)
                work.report(item.host)
                work.settle()
                continue
            pending = PendingRequest(item, work)
            if item.id >= 0:  # below are the robots.txt of centers, each with its own numbers
                self._pending[key] = pending
            self._waiting.append(pending)
        missing = min(len(self._waiting), self.settings.concurrency - len(self._workers))
        for _ in range(missing):
            task = asyncio.ensure_future(self._download_waiting())
            self._workers.add(task)
            task.add_done_callback(self._workers.discard)

    def forget_waiting(self) -> int:
        """Start no more downloads; return the number waiting, which stay unacknowledged."""
        count = len(self._waiting)
        for pending in self._waiting:
            self._pending.pop(pending.key, None)
        self._waiting.clear()
        return count

    async def settle(self, seconds: float) -> None:
        """Wait for running downloads, up to ``seconds``."""
        if self._workers:
            await asyncio.wait(list(self._workers), timeout=seconds)

    async def release(self) -> None:
        """Discard and count what waits or runs: the run needs it no more."""
        self._released = True
        discarded = list(self._waiting)
        self._waiting.clear()
        for pending in discarded:
            self._drop(pending)
        self._counters.discarded += len(discarded)
        await self.close()

    async def close(self) -> None:
        """Cancel running downloads and close every connection."""
        for task in list(self._workers):
            task.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        await self._fetcher.close()

    async def _download_waiting(self) -> None:
        while self._waiting:
            await self._results.room()
            if not self._waiting:
                return
            pending = self._waiting.popleft()
            work = pending.work
            # Checked again: it may have waited long for its slot.
            if self._clock.time() >= pending.void_at:
                self._counters.expired += 1
                self._drop(pending)
                continue
            try:
                result, fetched = await self._download(pending.item)
            except asyncio.CancelledError:
                if self._released:
                    self._counters.discarded += 1
                    self._drop(pending)
                raise
            self._pending.pop(pending.key, None)
            if pending.item.attempt != result.attempt:
                result = msgspec.structs.replace(result, attempt=pending.item.attempt)
            work.report(pending.item.host, fetched)
            self._results.add(work, result)
            self._used_at = self._clock.monotonic()

    def _drop(self, pending: PendingRequest) -> None:
        """Settle a request without downloading it."""
        self._pending.pop(pending.key, None)
        pending.work.report(pending.item.host)
        pending.work.settle()

    def notices(self) -> Iterator[Outgoing]:
        """Yield notices to the run: requests held until a redial, or not held any more.

        Without them the timeouts of the requests would run meanwhile, and fail them.
        """
        seconds = self._equipment.held_seconds(self.settings)
        now = self._clock.monotonic()
        by_queue: dict[str, list[tuple[int, int]]] = {}
        for pending in self._pending.values():
            attempt = pending.item.attempt
            if seconds:
                notified = pending.held_attempt == attempt
                if notified and now < pending.held_until - _RENEW_NOTICE_SECONDS:
                    continue
                pending.held_attempt, pending.held_until = attempt, now + seconds
            elif pending.held_attempt:
                pending.held_attempt = 0
            else:
                continue
            by_queue.setdefault(pending.work.reply_to, []).append((pending.item.id, attempt))
        for reply_to, items in by_queue.items():
            body = (
                encode(
                    DownloadsHeld(
                        run=self.run, reason=REDIALLING, wait_seconds=seconds, items=items
                    )
                )
                if seconds
                else encode(Dispatched(run=self.run, items=items))
            )
            yield Outgoing(body=body, key=reply_to, persistent=False)

    async def _download(self, item: RequestItem) -> tuple[DownloadResult, Fetched | None]:
        """Return the answer for the run, and the response of the host."""
        try:
            request = decode_request(item.request)
        except ProtocolError as error:
            return failed(item, FailureKind.BAD_REQUEST, str(error)), None
        fetched = None
        try:
            failpoints.hit("agent.before_fetch")
            started_at = self._clock.time()
            fetched = await self._fetcher.fetch(request)
            if item.id >= 0:
                self._keep(item, request, fetched, started_at)
                # Requests of a center have negative ids: its robots.txt must stay unchanged.
                fetched = await self._texts.apply(fetched)
            fetched, problem = await self._stored(fetched)
            result = await make_result(
                item.id, item.attempt, fetched, self.settings.result_version, problem
            )
        except Exception as error:  # the last guard: one request must not end its worker
            logger.exception("run %d: download failed unexpectedly", self.run)
            result = failed(item, FailureKind.BAD_REQUEST, f"{type(error).__name__}: {error}")
        self._counters.finished += 1
        self._rate.add()
        return result, fetched

    def _keep(
        self, item: RequestItem, request: DownloadRequest, fetched: Fetched, at: float
    ) -> None:
        policy = self.settings.pages
        if self._keeper is None or not policy.chooses(request.url, fetched.status, fetched.failure):
            return
        if fetched.stored is not None:
            # Its body was stored while it arrived, and never in memory.
            self._keeper.miss(self.run, policy.token, Reason.LARGE)
            return
        page = PageDownload(item.id, item.attempt, request, fetched, at, self._keeper.agent)
        self._keeper.keep(self.run, policy.token, page)

    async def _stored(self, fetched: Fetched) -> tuple[Fetched, str]:
        """Return the response with a large body in the store, or why it is not there."""
        bodies, body = self._bodies, fetched.body
        if bodies is None or len(body) <= self.settings.body_inline_bytes:
            return fetched, ""
        try:
            # One that may not fit into a message has no other way.
            if len(body) > MAX_CONTENT_BYTES:
                stored = await bodies.store_patiently(self.run, body)
            elif self.settings.result_version >= JOINED_BODIES_VERSION:
                stored = await bodies.store_joined(self.run, body)
            else:
                stored = await bodies.store(self.run, body)
        except BodyNotStored as error:
            return fetched, str(error)
        return dataclasses.replace(fetched, body=b"", stored=stored), ""


def failed(item: RequestItem, failure: FailureKind, error: str) -> DownloadResult:
    """Return the answer for a request that could not be downloaded at all."""
    return DownloadResult(item.id, item.attempt, "", 0, [], b"", failure, error)
