"""Scrapy extension: reports a crawl to the platform and carries out its commands."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sized
from typing import TYPE_CHECKING, Any, Final, Protocol

from scrapy import signals
from scrapy.exceptions import NotConfigured
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from twisted.internet.defer import Deferred

from yardkit.protocol import Lifecycle
from yardscrapy import files
from yardscrapy.counters import (
    InnerSpiderMiddleware,
    OuterSpiderMiddleware,
    RequestTracker,
    counting_downloader,
    describe,
    set_tracker,
)
from yardscrapy.hop import Hop
from yardscrapy.items import ITEM_ERROR
from yardscrapy.report import ReportingClient, RunReport
from yardscrapy.saved_start import SavedStartMiddleware
from yardscrapy.session import Session, current
from yardspider.errors import BadInput, RunFailed
from yardspider.lifecycle import CommandHandler

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from scrapy.http import Request
    from scrapy.settings import BaseSettings

log = logging.getLogger("yardscrapy")

# Close reason when the broker or the center is lost for good.
LOST: Final = "platform_lost"
_STEP_SECONDS: Final = 1.0
_SETTLE_SECONDS: Final = 0.2
# How long a stopped crawl waits for pages that are out: as ``SpiderSettings.stop_seconds``.
_STOP_SECONDS: Final = 1.5


# Nearest to the engine, and nearest to the spider.
_OUTER, _INNER = -1_000_000, 1_000_000
# Last: after the extensions that change items or statistics at the same signals.
_LATE = 1_000_000


class CrawlClient(ReportingClient, Protocol):
    """The run's client, as far as the extension uses it."""

    loop: asyncio.AbstractEventLoop
    on_failure: Callable[[RunFailed], None] | None

    def listen(self, on_command: Callable[[Lifecycle], None]) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def abort(self, reason: str) -> None:
        """End everything that is out. For the client's thread."""

    def close(self, seconds: float) -> None:
        """Release the agents and end the thread."""


class CrawlControl:
    """One crawl under the platform's control.

    stop_reason: why the platform ends it; "" while it does not. close_reason: Scrapy's, at the
    end. failure: why it cannot go on.

    Args:
        in_crawl: runs a function in the crawl's thread; may be called from any thread.
    """

    def __init__(
        self,
        crawler: Crawler,
        client: CrawlClient,
        report: RunReport,
        in_crawl: Callable[[Callable[[], None]], None],
    ) -> None:
        self._crawler = crawler
        self._client = client
        self._report = report
        self._in_crawl = in_crawl
        self.tracker = RequestTracker(report)
        self.stop_reason = ""
        self.close_reason = ""
        self._stores_items = crawler.settings.get("CRAWLYARD_ITEMS", "on") == "on"
        self.failure: RunFailed | None = None
        self.commands: CommandHandler | None = None
        self._has_room: Deferred[None] | None = None
        self._is_stepping = False
        self._is_stopping = False
        self._was_running = False
        # Before that, Scrapy has neither engine nor statistics.
        self._is_open = False
        client.listen(self._command)
        client.on_failure = self._failed
        client.call(self._tick)

    # --- the crawl's thread ---------------------------------------------------------------------

    def item_scraped(self, item: Any, response: Any) -> Coroutine[Any, Any, None] | None:
        """Hand an item over. Scrapy waits for the result, if there is one, before it goes on."""
        if self._stores_items:
            self._report.item(item, getattr(response, "url", ""))
        self.tracker.item_settled(response)
        return self._room() if self._report.crowded else None

    async def _room(self) -> None:
        while self._report.crowded and not self._is_stopping:
            if self._has_room is None:
                self._has_room = Deferred()
                self._report.when_there_is_room(lambda: self._in_crawl(self._ring))
            waiting: Deferred[None] = Deferred()
            self._has_room.addCallback(waiting.callback)
            await maybe_deferred_to_future(waiting)

    def _ring(self) -> None:
        has_room, self._has_room = self._has_room, None
        if has_room is not None:
            has_room.callback(None)

    def item_dropped(self, response: Any, reason: str) -> None:
        self._report.item_dropped(reason)
        self.tracker.item_settled(response)

    def _step(self) -> None:
        self._is_stepping = False
        if self._is_open:
            self.tracker.sweep(self._in_scraper)
            self._report.publish(self.queued(), self._crawler.stats.get_stats())
            self._watch_stop()

    def queued(self) -> int:
        """Return the number of requests in the scheduler."""
        engine: Any = self._crawler.engine
        # ``engine.scheduler`` is public from 2.19; before, the slot was ``slot``, then ``_slot``.
        slot = getattr(engine, "slot", None) or getattr(engine, "_slot", None)
        scheduler = getattr(engine, "scheduler", None) or getattr(slot, "scheduler", None)
        # A project's own scheduler need not tell its length.
        return len(scheduler) if isinstance(scheduler, Sized) else 0

    def _in_scraper(self, request: Request) -> bool:
        slot: Any = self._crawler.engine.scraper.slot
        return slot is not None and request in slot.active

    def _watch_stop(self) -> None:
        """Notice that Scrapy stops by itself: a signal that it handles."""
        running = self._crawler.engine.running
        if self._was_running and not running:
            self._hurry("the run stops")
        self._was_running = running

    def _hurry(self, reason: str) -> None:
        """Give what is out a moment, then end it: the platform kills after five seconds."""
        if not self._is_stopping:
            self._is_stopping = True
            # Pipelines that wait for confirms would hold up the end.
            self._ring()
            self._client.call(self._abort_soon, reason)

    def engine_started(self) -> None:
        self._is_open = True
        if self.stop_reason or self.failure:
            self._close()

    def spider_closed(self, reason: str) -> None:
        """Note the end, while Scrapy's queue still exists."""
        self.close_reason = reason
        self._report.publish(self.queued(), self._crawler.stats.get_stats())
        self._is_open = False

    def _close(self) -> None:
        if not self._is_open:
            return  # once it is
        crawler = self._crawler
        engine: Any = crawler.engine
        reason = "shutdown" if self.stop_reason else LOST
        self._hurry(self.stop_reason or str(self.failure))
        if engine.spider is None:
            return
        if hasattr(engine, "close_spider_async"):
            deferred_from_coro(engine.close_spider_async(reason=reason))
        else:
            engine.close_spider(crawler.spider, reason)

    async def finish(self, stats: Mapping[str, Any], *, hurry: bool) -> RunFailed | None:
        """Send what is left after the crawl; for the client's loop, while the crawl's has ended."""
        self.tracker.sweep(lambda request: False, at_end=True)
        if self.commands is not None:
            self.commands.finish()
        return await self._report.finish(stats, hurry=hurry)

    # --- the client's thread --------------------------------------------------------------------

    def _tick(self) -> None:
        if not self._is_stepping:
            self._is_stepping = True
            self._in_crawl(self._step)
        asyncio.get_running_loop().call_later(_STEP_SECONDS, self._tick)

    def _abort_soon(self, reason: str) -> None:
        asyncio.get_running_loop().call_later(_STOP_SECONDS, self._client.abort, reason)

    def _failed(self, failure: RunFailed) -> None:
        if self.failure is None:
            self.failure = failure
            log.error("the run cannot go on: %s", failure)
            self._in_crawl(self._close)

    def _command(self, message: Lifecycle) -> None:
        if self.commands is None:
            transport = self._client.transport
            if transport is None:
                return
            self.commands = CommandHandler(transport, self)
        self.commands.take(message, time.monotonic())
        self._settle()

    def _settle(self) -> None:
        if self.commands is not None and self.commands.settle(time.monotonic()) is not None:
            asyncio.get_running_loop().call_later(_SETTLE_SECONDS, self._settle)

    def pause(self) -> None:
        self._client.pause()
        self._in_crawl(lambda: self._crawler.engine.pause())

    def resume(self) -> None:
        self._client.resume()
        self._in_crawl(lambda: self._crawler.engine.unpause())

    def stop(self, reason: str) -> None:
        self.stop_reason = self.stop_reason or reason
        self._in_crawl(self._close)

    def tune(self, settings: Mapping[str, Any]) -> str:
        raise BadInput(
            "a Scrapy run keeps its pace: set CONCURRENT_REQUESTS and DOWNLOAD_DELAY in the project"
        )

    def on_their_way(self) -> int:
        return self._client.depths().out


# Of the crawl of this process; read by the CLI when Scrapy has ended.
control_of_run: CrawlControl | None = None


class PlatformExtension:
    """Connects a crawl on the platform to its report; the CLI reads ``control`` at the end."""

    def __init__(self, crawler: Crawler, session: Session, control: CrawlControl) -> None:
        self._crawler = crawler
        self._session = session
        self._control = control
        set_tracker(crawler, control.tracker)
        connect = crawler.signals.connect
        connect(self.engine_started, signal=signals.engine_started)
        connect(self.spider_closed, signal=signals.spider_closed)
        connect(self.item_scraped, signal=signals.item_scraped)
        connect(self.item_dropped, signal=signals.item_dropped)
        connect(self.item_error, signal=signals.item_error)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> PlatformExtension:
        global control_of_run
        session = current()
        if session is None:
            raise NotConfigured("this is no run of the platform")
        keeps_files = files.keeps_files(crawler.settings)
        report = RunReport(
            session.client, session.items, session.accounting, lambda: crawler.spider, keeps_files
        )
        if keeps_files:
            files.register_store(report.file)
        control = CrawlControl(crawler, session.client, report, Hop())
        control_of_run = control
        return cls(crawler, session, control)

    def engine_started(self) -> None:
        # Also for a crawl that downloads nothing: its items need the connection.
        self._session.start(self._crawler.settings)
        self._control.engine_started()

    def spider_closed(self, reason: str) -> None:
        self._control.spider_closed(reason)

    def item_scraped(self, item: Any, response: Any) -> Coroutine[Any, Any, None] | None:
        return self._control.item_scraped(item, response)

    def item_dropped(self, item: Any, response: Any, exception: BaseException) -> None:
        self._control.item_dropped(response, str(exception) or type(exception).__name__)

    def item_error(self, item: Any, response: Any, failure: Any) -> None:
        self._control.item_dropped(response, f"{ITEM_ERROR}: {describe(failure.value)}")


class ReportAddon:
    """Scrapy add-on with the components of this module; after that of the downloads."""

    def update_settings(self, settings: BaseSettings) -> None:
        """Change the settings of one crawler on the platform."""
        settings.set("DOWNLOADER", counting_downloader(settings["DOWNLOADER"]), priority="cmdline")
        for name, component, order in (
            ("SPIDER_MIDDLEWARES", OuterSpiderMiddleware, _OUTER),
            ("SPIDER_MIDDLEWARES", SavedStartMiddleware, _INNER - 1),
            ("SPIDER_MIDDLEWARES", InnerSpiderMiddleware, _INNER),
            ("EXTENSIONS", PlatformExtension, _LATE),
        ):
            added = {**settings.getdict(name), component: order}
            settings.set(name, added, priority="cmdline")
