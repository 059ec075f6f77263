"""Downloads of a crawl by center and agents, in a thread of its own.

A project's reactor may be of any kind, or none, so the connection to the platform has an asyncio
loop in the thread "yardscrapy".
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, TypeVarTuple

from yardkit.broker import Outgoing
from yardkit.protocol import (
    DownloaderSettings,
    DownloadRequest,
    DownloadResult,
    DownloadResults,
    DownloadsHeld,
    FailureKind,
    Lifecycle,
    LifecycleAnswer,
    Policy,
    RequestItem,
)
from yardscrapy.failures import Kind
from yardspider.accounting import CrawlAccounting, Depths
from yardspider.attempts import AttemptTracker, Unanswered
from yardspider.environment import RunEnvironment
from yardspider.errors import RunFailed
from yardspider.flights import Flight
from yardspider.settings import SpiderSettings
from yardspider.transports.base import Answer
from yardspider.transports.remote import RemoteTransport

log = logging.getLogger("yardscrapy")

Ts = TypeVarTuple("Ts")

# Methods whose request may be sent again when its answer is lost (RFC 9110, 9.2.2).
IDEMPOTENT: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
# Attempts beyond the first whose answer is lost; then Scrapy's own retries begin.
_LOST_RETRIES: Final = 2
_TICK_SECONDS: Final = 0.25
# From here on the thread counts as blocked, by a callback that keeps the interpreter's lock.
_DEAF_SECONDS: Final = 0.5


@dataclasses.dataclass(frozen=True, slots=True)
class ClientResult:
    """End of one download: ``result``, or ``kind`` and ``error`` without one.

    ``kind`` is that of the result's failure, NONE for a response. ``number`` and ``attempts``: of
    the request in the messages to the agents.
    """

    result: DownloadResult | None
    agent: str
    error: str
    kind: Kind
    number: int = 0
    attempts: int = 1


class Download:
    """One request on its way; ``on_done`` is called in the client's thread."""

    __slots__ = ("agent", "host", "on_done", "request", "timeout_seconds")

    def __init__(
        self,
        request: DownloadRequest,
        host: str,
        agent: str,
        timeout_seconds: float | None,
        on_done: Callable[[ClientResult], None],
    ) -> None:
        self.request = request
        self.host = host
        self.agent = agent
        self.timeout_seconds = timeout_seconds
        self.on_done = on_done

    def download(self) -> DownloadRequest:
        return self.request

    def fail(self, kind: Kind, error: str, number: int = 0, attempts: int = 1) -> None:
        """End it without a result."""
        self.on_done(ClientResult(None, self.agent, error, kind, number, attempts))


class _Downloads(AttemptTracker[Download]):
    """Attempts of the downloads of a run. Retries of failed downloads are Scrapy's."""

    def __init__(
        self, settings: SpiderSettings, transport: RemoteTransport, accounting: CrawlAccounting
    ) -> None:
        super().__init__(settings, transport, accounting)
        self.failed: dict[str, int] = {}
        self._longest_seconds = 0.0

    def send(self, downloads: Sequence[Download], now: float) -> None:
        items: list[RequestItem] = []
        while (ready := self._flights.take_ready()) is not None:
            self._accounting.retried += 1
            items.append(self._launch(ready, now))
        for download in downloads:
            seconds = download.timeout_seconds
            flight = self._flights.open(download, download.agent, seconds)
            self._longest_seconds = max(self._longest_seconds, seconds or 0.0)
            self._accounting.sent += 1
            items.append(self._launch(flight, now))
        if items:
            self._transport.send(items)

    @property
    def has_ready(self) -> bool:
        return self._flights.has_ready

    @property
    def held(self) -> int:
        return self._flights.held

    @property
    def _silence_seconds(self) -> float:
        # A single download may take longer than the limit for silence.
        return max(self._settings.no_answer_seconds, self._longest_seconds)

    def take(self, answer: Answer, now: float) -> None:
        """End the downloads of an answer. Raises ``RunFailed``."""
        if not isinstance(answer, DownloadResults):
            self._take_notice(answer, now)
            return
        self._heard(now, answer.agent)
        for result in answer.items:
            self._answered(result, answer.agent, now)

    def _answered(self, result: DownloadResult, agent: str, now: float) -> None:
        accounting = self._accounting
        flight = self._flights.find(result.id, result.attempt)
        missing = result.failure is FailureKind.DOWNLOADER_MISSING
        if flight is None or (missing and result.attempt in flight.given_up):
            accounting.duplicates += 1
            return
        self._account(flight, result.attempt)
        accounting.take_answer(agent, result.elapsed_ms, success=result.failure is FailureKind.NONE)
        accounting.bytes_received += result.size
        if missing:
            self._lost(flight, f"{result.failure}: {result.error}", now)
            return
        self._flights.settle(flight)
        if result.failure is not FailureKind.NONE:
            self._count(result.failure)
        flight.request.on_done(
            ClientResult(result, agent, result.error, result.failure, flight.id, flight.attempt)
        )

    def _fail(self, flight: Flight[Download], reason: str, kind: Unanswered) -> None:
        self._flights.settle(flight)
        self._count(kind)
        flight.request.fail(kind, reason, flight.id, flight.attempt)

    def _count(self, kind: str) -> None:
        self.failed[kind] = self.failed.get(kind, 0) + 1

    def _may_resend(self, flight: Flight[Download]) -> bool:
        idempotent = flight.request.request.method in IDEMPOTENT
        return idempotent and len(flight.given_up) <= _LOST_RETRIES

    def end(self, reason: str) -> None:
        """End everything that is out or waits."""
        self.cancel()
        for flight in self._flights.unsettled():
            self._fail(flight, reason, "lost")


class DownloadClient:
    """Connection of one execution of a run to center and agents.

    Public methods are thread-safe, except where they say otherwise. Attempts are counted in
    ``accounting``, in the client's thread.

    Args:
        settings: of the run's downloaders. ``configure`` may replace it before ``start``.
    """

    def __init__(
        self,
        run: RunEnvironment,
        settings: DownloaderSettings,
        spider_settings: SpiderSettings,
        accounting: CrawlAccounting | None = None,
    ) -> None:
        self._run = dataclasses.replace(run, downloader=settings)
        self._settings = spider_settings
        self.accounting = accounting or CrawlAccounting()
        self.loop = _new_loop()
        self.transport: RemoteTransport | None = None
        self.failure: RunFailed | None = None
        self.on_failure: Callable[[RunFailed], None] | None = None
        self._on_command: Callable[[Lifecycle], None] | None = None
        self._downloads: _Downloads | None = None
        self._thread: threading.Thread | None = None
        self._inbox: deque[Download] = deque()
        self._is_woken = False
        self._unpublished: list[tuple[Sequence[Outgoing], Callable[[], None] | None]] = []
        self._is_ready = False
        self._is_paused = False
        self._ended = ""
        self._closing = asyncio.Event()

    def configure(self, settings: DownloaderSettings, spider_settings: SpiderSettings) -> None:
        """Use other settings; only before ``start``."""
        self._run = dataclasses.replace(self._run, downloader=settings)
        self._settings = spider_settings

    def listen(self, on_command: Callable[[Lifecycle], None]) -> None:
        """Call ``on_command``, in the client's thread, with commands to the run.

        Only before ``start``.
        """
        self._on_command = on_command

    @property
    def chained(self) -> bool:
        """Whether a request made from a page goes to the agent that fetched the page."""
        return self._run.policy is Policy.CHAINED

    def start(self) -> None:
        """Start the thread, which connects and allocates agents. Idempotent."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="yardscrapy", daemon=True)
            self._thread.start()

    def submit(
        self,
        request: DownloadRequest,
        *,
        host: str,
        agent: str = "",
        timeout_seconds: float | None = None,
        on_done: Callable[[ClientResult], None],
    ) -> None:
        """Download; ``on_done`` is called once, in the client's thread.

        ``timeout_seconds``: how long its answer may take, without times at the center.
        """
        self._inbox.append(Download(request, host, agent, timeout_seconds, on_done))
        if not self._is_woken:
            self._is_woken = True
            self.call(self._take_inbox)

    def call(self, work: Callable[[*Ts], object], *arguments: *Ts) -> None:
        """Call ``work`` in the client's thread; nothing happens after ``close``."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self.loop.call_soon_threadsafe(work, *arguments)

    def publish(
        self, messages: Sequence[Outgoing], on_confirmed: Callable[[], None] | None = None
    ) -> None:
        """Publish until the broker has confirmed, then call ``on_confirmed`` in the thread."""
        if threading.current_thread() is self._thread:
            self._publish(messages, on_confirmed)
        else:
            self.call(self._publish, messages, on_confirmed)

    def answer_command(self, answer: LifecycleAnswer) -> None:
        """Send the answer to a command, again until it is confirmed."""
        self.call(self._answer_command, answer)

    def pause(self) -> None:
        """Send nothing more, and withdraw what the center holds."""
        self.call(self._pause)

    def resume(self) -> None:
        """Go on sending."""
        self.call(self._resume)

    def abort(self, reason: str) -> None:
        """End every download as lost, also those to come."""
        self.call(self._end, reason)

    def depths(self) -> Depths:
        """Return what is out and held; only in the client's thread."""
        downloads = self._downloads
        if downloads is None:
            return Depths(queued=len(self._inbox))
        return Depths(len(self._inbox), downloads.unsettled, downloads.out, downloads.held)

    def failed(self) -> dict[str, int]:
        """Return the number of failed downloads by kind; only in the client's thread."""
        return {} if self._downloads is None else dict(self._downloads.failed)

    def close(self, seconds: float) -> None:
        """Release the agents and disconnect; wait ``seconds`` at most. Idempotent."""
        self.call(self._closing.set)
        if self._thread is not None:
            self._thread.join(seconds)

    # --- in the client's thread -----------------------------------------------------------------

    def _work(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_until_complete(self._main())
        except Exception:
            log.exception("the connection to the platform failed")
        finally:
            self.loop.close()

    async def _main(self) -> None:
        transport = self.transport = RemoteTransport(
            # Scrapy has each body in memory; DOWNLOAD_MAXSIZE limits it.
            self._run,
            self._settings,
            body_memory_bytes=None,
        )
        if self._on_command is not None:
            transport.listen(self._on_command)
        self._downloads = _Downloads(self._settings, transport, self.accounting)
        crawl = asyncio.create_task(self._crawl(transport, self._downloads))
        closing = asyncio.create_task(self._closing.wait())
        await asyncio.wait({crawl, closing}, return_when=asyncio.FIRST_COMPLETED)
        if crawl.done():
            self._lose(crawl.exception())
            await closing
        else:
            crawl.cancel()
        self._end("the run has ended")
        await transport.close()

    def _lose(self, error: BaseException | None) -> None:
        """Note that the crawl cannot go on: every download fails from now on."""
        if not isinstance(error, RunFailed):
            log.error("the connection to the platform failed", exc_info=error)
            error = RunFailed(f"{type(error).__name__}: {error}")
        log.error("%s", error)
        self.failure = error
        self._end(str(error))
        if self.on_failure is not None:
            self.on_failure(error)

    async def _crawl(self, transport: RemoteTransport, downloads: _Downloads) -> None:
        """Raises ``RunFailed``; ends in no other way."""
        allocation = await transport.allocate()
        if allocation.warning:
            log.warning("%s", allocation.warning)
        downloads.allocated(allocation.agents)
        self._is_ready = True
        for messages, on_confirmed in self._unpublished:
            transport.publish(messages, on_confirmed)
        self._unpublished.clear()
        self._take_inbox()
        tasks = {
            asyncio.create_task(self._watch(transport, downloads)),
            asyncio.create_task(self._receive(transport, downloads)),
        }
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
        done.pop().result()

    async def _receive(self, transport: RemoteTransport, downloads: _Downloads) -> None:
        while True:
            answers = await transport.receive()
            now = time.monotonic()
            for answer in answers:
                downloads.take(answer, now)
                if self._is_paused and isinstance(answer, DownloadsHeld):
                    # It was on its way to the center when the run paused.
                    transport.withdraw()

    async def _watch(self, transport: RemoteTransport, downloads: _Downloads) -> None:
        """Let requests time out, but not by times in which no answer could be read."""
        last = time.monotonic()
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            now = time.monotonic()
            passed = now - last
            last = now
            if transport.away or self._is_paused:
                downloads.was_deaf(passed)
                continue
            if passed > _DEAF_SECONDS:
                downloads.was_deaf(passed - _TICK_SECONDS)
            downloads.tick(now)
            if downloads.has_ready or self._inbox:
                self._take_inbox()

    def _take_inbox(self) -> None:
        # First, so that what comes from now on wakes the thread again.
        self._is_woken = False
        if self._ended:
            while self._inbox:
                self._inbox.popleft().fail("lost", self._ended)
            return
        transport, downloads = self.transport, self._downloads
        if transport is None or downloads is None or not self._is_ready:
            return
        if self._is_paused or transport.away:
            return
        sent: list[Download] = []
        while self._inbox:
            sent.append(self._inbox.popleft())
        downloads.send(sent, time.monotonic())

    def _publish(
        self, messages: Sequence[Outgoing], on_confirmed: Callable[[], None] | None
    ) -> None:
        if self.transport is None or not self._is_ready:
            self._unpublished.append((messages, on_confirmed))
        else:
            self.transport.publish(messages, on_confirmed)

    def _answer_command(self, answer: LifecycleAnswer) -> None:
        if self.transport is not None:
            self.transport.answer_command(answer)

    def _pause(self) -> None:
        self._is_paused = True
        if self.transport is not None:
            self.transport.withdraw()

    def _resume(self) -> None:
        self._is_paused = False
        self._take_inbox()

    def _end(self, reason: str) -> None:
        self._ended = self._ended or reason
        if self._downloads is not None:
            self._downloads.end(self._ended)
        self._take_inbox()


def _new_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's where it exists: it halves the cost of an answer."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
