"""The main loop of a run: start, send, receive, call back, until nothing is left to do."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from yardkit.protocol import DownloadsHeld
from yardspider.accounting import CrawlAccounting, Depths
from yardspider.caller import START_QUEUE, Caller
from yardspider.clock import Alarm, EngineClock, MonotonicClock
from yardspider.dispatcher import RequestDispatcher
from yardspider.errors import RunFailed, TransportLost
from yardspider.files import Files
from yardspider.lifecycle import CommandHandler
from yardspider.outcome import CrawlOutcome, State
from yardspider.outputs import ItemSink
from yardspider.pace import CrawlPace
from yardspider.reporter import Reporter
from yardspider.request import Request
from yardspider.resources.api import Resources
from yardspider.resources.port import Pools
from yardspider.seeds.api import Seeds
from yardspider.seeds.client import RunSeeds
from yardspider.seeds.port import RunFrontier
from yardspider.settings import SEEDS_EMPTY_SECONDS, SpiderSettings
from yardspider.spider import SeedSpider, Spider
from yardspider.transports.base import Answer, RunTransport

log = logging.getLogger("yardspider")

# Limit for the last calls to the seed service.
LAST_SEEDS_SECONDS = 1.5
# Limit for the last confirms of items.
LAST_ITEMS_SECONDS = 1.5
# Limit for giving back leased resources; the platform takes them back otherwise.
LAST_RESOURCES_SECONDS = 1.0
_LAST_REPORT_SECONDS = 30.0
_CANCEL_SECONDS = 0.5
# Longest time that an item waits for others to be sent with it.
_FLUSH_SECONDS = 1.0
# From here on the loop counts as blocked by the spider's own code.
_DEAF_SECONDS = 0.2
# Interval of looking whether the transport is connected again.
_AWAY_SECONDS = 0.5
# When stopped, or when the broker is known to be gone.
_LAST_REPORT_HURRIED_SECONDS = 1.0
_LAST_SEEDS_UNHURRIED_SECONDS = 30.0


class CrawlEngine:
    """One run of one spider over one transport. ``run`` may be called once.

    Args:
        items: where the spider's items go.
        clock: real time unless a test passes its own.
        accounting: counters, for callers that read them meanwhile.
        frontier: where seeds are added and leased.
        pools: resource pools from which the spider may lease.
        start: makes the run's requests instead of the spider; no seeds are taken then.
    """

    def __init__(
        self,
        spider: Spider,
        settings: SpiderSettings,
        transport: RunTransport,
        items: ItemSink,
        *,
        clock: EngineClock | None = None,
        accounting: CrawlAccounting | None = None,
        frontier: RunFrontier | None = None,
        pools: Pools | None = None,
        start: Callable[[], Iterable[Request]] | None = None,
    ) -> None:
        self._settings = settings
        self._transport = transport
        self._items = items
        self._clock: EngineClock = clock or MonotonicClock()
        self._alarm = Alarm()
        self.accounting = accounting or CrawlAccounting()
        self._takes_seeds = isinstance(spider, SeedSpider) and start is None
        self._pace = CrawlPace(settings)
        self._seed_client = RunSeeds(
            frontier,
            settings,
            takes_seeds=self._takes_seeds,
            clock=self._clock,
            before_finish=items.flush,
            ring=self._alarm.ring,
        )
        self._dispatcher = RequestDispatcher(
            settings,
            transport,
            self.accounting,
            spider.is_success,
            pace=self._pace,
            on_failed=lambda request, failure: self._caller.request_failed(request, failure),
        )
        self._caller = Caller(
            spider,
            self._dispatcher,
            self._seed_client,
            items,
            self.accounting,
            chained=transport.chained,
            ring=self._alarm.ring,
            start=start,
        )
        self._resources = Resources(pools)
        items.connect(transport, self._alarm.ring)
        self._equip(spider)
        self._reporter = Reporter(transport, self.accounting, self._depths, items.flush_requests)
        self._feeder: asyncio.Task[None] | None = None
        self._receiver: asyncio.Task[Sequence[Answer]] | None = None
        self._allocating: asyncio.Task[Any] | None = None
        self._stop_reason = ""
        self._stop_by: float | None = None
        self._report_at = 0.0
        self._flush_at = 0.0
        self._empty_since: float | None = None
        self._commands = CommandHandler(transport, self)
        # Until when this pause has been accounted for; None while the run is not paused.
        self._paused_to: float | None = None
        self._resumed_at = 0.0
        self._settle_by: float | None = None

    def _equip(self, spider: Spider) -> None:
        """Set the attributes of the spider that exist only during a run."""
        spider.seeds = Seeds(self._seed_client)
        spider.resources = self._resources
        spider.files = Files(self._items)

    def stop(self, reason: str) -> None:
        """Send nothing more, wait up to ``stop_seconds`` for what is out, then end as stopped."""
        if self._stop_by is None:
            self._stop_reason = reason
            self._stop_by = self._clock.now() + self._settings.stop_seconds
            self._seed_client.stop()
            for task in (self._allocating, self._feeder):
                if task is not None:
                    task.cancel()
            self._alarm.ring()

    # --- pausing ------------------------------------------------------------------------------

    @property
    def paused(self) -> bool:
        """Whether nothing is sent; answers are still handled."""
        return self._paused_to is not None

    def pause(self) -> None:
        """Stop sending, and withdraw what the center holds."""
        if self._paused_to is None:
            self._paused_to = self._clock.now()
            self._empty_since = None
            self._transport.withdraw()
            self._seed_client.pause()
            self._alarm.ring()

    def resume(self) -> None:
        """Go on where the run was paused."""
        self._resumed_at = self._now()
        self._paused_to = None
        self._seed_client.resume()
        self._alarm.ring()

    def tune(self, settings: Mapping[str, Any]) -> str:
        """Change ``concurrency`` and ``speed``; return a description of both.

        Raises ``BadInput``.
        """
        pace = self._pace.tune(settings)
        self._dispatcher.tuned(self._clock.now())
        self._alarm.ring()
        return pace

    def on_their_way(self) -> int:
        """Return the number of requests sent and not answered."""
        return self._dispatcher.out

    def _now(self) -> float:
        """Return the time; a pause counts against no request and no limit."""
        now = self._clock.now()
        if self._paused_to is not None:
            self._dispatcher.was_deaf(now - self._paused_to)
            self._paused_to = now
        return now

    # --- the whole ----------------------------------------------------------------------------

    async def run(self) -> CrawlOutcome:
        """Run to the end. Every end is an ``CrawlOutcome``, never an exception."""
        begin = self._clock.now()
        self._transport.listen(lambda message: self._commands.take(message, self._now()))
        failure = await self._try_run()
        self._dispatcher.cancel()
        self._commands.finish()
        state: State = "exited" if failure is None else "failed"
        reason = "" if failure is None else str(failure)
        if self._stop_by is not None:
            state, reason = "stopped", self._stop_reason
            if self._items.unconfirmed and failure is not None:
                reason = f"{reason}; {failure}"
        elif failure is None and self.accounting.total and not self.accounting.success:
            state, reason = "failed", self._nothing_succeeded()
        elif failure is None and self.accounting.unanswered:
            state, reason = "failed", self._unanswered()
        hurry = state == "stopped" or isinstance(failure, TransportLost)
        limit = _LAST_REPORT_HURRIED_SECONDS if hurry else _LAST_REPORT_SECONDS
        counters = await self._reporter.finish(limit_seconds=limit)
        await self._transport.close()
        seconds = self._clock.now() - begin
        return CrawlOutcome(
            state, reason, counters, self.accounting, seconds, self._seed_client.counts
        )

    async def _try_run(self) -> RunFailed | None:
        failure = None
        try:
            await self._allocate()
            await self._crawl()
        except RunFailed as caught:
            failure = caught
        finally:
            await self._cancel_tasks()
        try:
            await self._items.finish(LAST_ITEMS_SECONDS)
        except RunFailed as caught:
            if failure is not None:
                log.error("%s", caught)
            failure = failure or caught
        hurry = failure is not None or self._stop_by is not None
        limit = LAST_SEEDS_SECONDS if hurry else _LAST_SEEDS_UNHURRIED_SECONDS
        untold = await self._seed_client.finish(limit)
        await self._resources.finish(LAST_RESOURCES_SECONDS)
        return failure or untold

    def _nothing_succeeded(self) -> str:
        first = self.accounting.first_failures[0]
        what = "used" if 0 < first.status < 400 else "fetched"
        return f"no page could be {what}: {first.reason} ({first.url})"

    def _unanswered(self) -> str:
        """Return the reason of a run that fails for unanswered requests only."""
        retries = self._settings.request_timeout_retries
        return (
            f"{self.accounting.unanswered} of {self.accounting.total} requests were not answered"
            f" by the platform after {retries} retries; are the center and the run's agents alive?"
        )

    async def _allocate(self) -> None:
        if self._stop_by is not None:
            return
        self._allocating = asyncio.create_task(self._transport.allocate())
        try:
            allocation = await self._allocating
        except asyncio.CancelledError:
            if self._stop_by is None:
                raise
            return
        finally:
            self._allocating = None
        self._dispatcher.allocated(allocation.agents)
        if allocation.warning:
            log.warning("%s", allocation.warning)
        await self._seed_client.open()

    async def _cancel_tasks(self) -> None:
        tasks = [self._feeder, self._receiver, *self._caller.tasks]
        running = [task for task in tasks if task is not None]
        for task in running:
            task.cancel()
        if running:
            # A callback that swallows its cancellation must not hold up the end of the run.
            await asyncio.wait(running, timeout=_CANCEL_SECONDS)
        for task in running:
            if task.done() and not task.cancelled():
                task.exception()

    # --- the loop -----------------------------------------------------------------------------

    async def _crawl(self) -> None:
        if self._stop_by is not None:
            return
        self._report_at = self._clock.now()
        self._feeder = asyncio.create_task(self._caller.feed())
        self._receive_next()
        woken = self._now()
        while True:
            self._take_answers()
            now = self._now()
            self._note_deafness(woken, now)
            self._step(now)
            failure = self._caller.failure or self._items.failure
            if failure is not None:
                raise failure
            if self._is_finished(now):
                return
            until = self._next_wake(now)
            await self._clock.wait(self._alarm, until)
            woken = self._now()
            if self._transport.away:
                # No answer can come, so this time counts against no request.
                self._note_deafness(now, woken, at_least=0.0)
            else:
                self._note_deafness(max(now, until), woken)

    def _note_deafness(self, begin: float, end: float, at_least: float = _DEAF_SECONDS) -> None:
        # Pauses are accounted for in ``_now``.
        seconds = end - max(begin, self._resumed_at)
        if not self.paused and seconds > at_least:
            self._dispatcher.was_deaf(seconds)

    def _receive_next(self) -> None:
        self._receiver = asyncio.create_task(self._receive())

    async def _receive(self) -> Sequence[Answer]:
        try:
            return await self._transport.receive()
        finally:
            self._alarm.ring()

    def _take_answers(self) -> None:
        if self._receiver is None or not self._receiver.done():
            return
        answers = self._receiver.result()
        # Receive the next ones before working on these: they travel meanwhile.
        self._receive_next()
        for answer in answers:
            now = self._now()
            for request, response in self._dispatcher.take(answer, now):
                self._caller.call(request, response)
            if self.paused and isinstance(answer, DownloadsHeld):
                # It was on its way to the center when the run paused.
                self._transport.withdraw()
            if self._may_send and not self._is_crowded:
                self._dispatcher.fill(now, busy=self._busy)

    @property
    def _busy(self) -> int:
        """Number of callbacks that await something: each takes a place in the window."""
        return len(self._caller.tasks)

    @property
    def _is_crowded(self) -> bool:
        return self._seed_client.crowded or self._items.crowded

    @property
    def _may_send(self) -> bool:
        return self._stop_by is None and not self.paused and not self._transport.away

    def _step(self, now: float) -> None:
        self._settle_by = self._commands.settle(now)
        if self._stop_by is None:
            if self._may_send:
                self._dispatcher.tick(now)
                if not self._is_crowded:
                    self._begin_seeds()
                    self._dispatcher.fill(now, busy=self._busy)
            if self._dispatcher.queued < START_QUEUE and not self._is_crowded:
                self._caller.hungry.set()
        self._seed_client.step(now)
        if now >= self._report_at:
            self._report_at = now + self._settings.statistics_seconds
            self._reporter.publish()
        if now >= self._flush_at or self._awaits_items:
            self._flush_at = now + _FLUSH_SECONDS
            self._items.flush()

    @property
    def _awaits_items(self) -> bool:
        """Whether nothing goes on before the items that were found are stored."""
        dispatcher = self._dispatcher
        if self._stop_by is not None:
            return True
        if dispatcher.queued or dispatcher.unsettled or self._busy:
            return False
        return self._items.waiting > 0 or (self._feeder is not None and self._feeder.done())

    def _begin_seeds(self) -> None:
        """Make requests of the next seeds, about one second before they are sent."""
        pace = self._pace
        most = min(pace.concurrency, math.ceil(pace.speed)) if pace.speed else pace.concurrency
        while self._dispatcher.queued < most and self._busy < pace.concurrency:
            task = self._seed_client.take()
            if task is None:
                return
            self._caller.begin(task)

    def _is_finished(self, now: float) -> bool:
        dispatcher = self._dispatcher
        if self._stop_by is not None:
            ended = not (dispatcher.active or self._busy or self._items.unconfirmed)
            return now >= self._stop_by or ended
        busy = dispatcher.queued or dispatcher.unsettled or self._busy or self._seed_client.busy
        busy = busy or self._items.unconfirmed
        if busy or self.paused or self._is_awaiting_start():
            self._empty_since = None
            return False
        if self._empty_since is None:
            self._empty_since = now
        # As ``_next_wake`` adds it up: a difference may be rounded the other way.
        return now >= self._empty_since + self._patience

    @property
    def _patience(self) -> float:
        """Seconds that the run stays empty before it ends."""
        settings = self._settings
        if not self._takes_seeds:
            return settings.patience_seconds
        if settings.empty_seconds is None:
            return SEEDS_EMPTY_SECONDS
        return settings.empty_seconds or math.inf

    def _is_awaiting_start(self) -> bool:
        """Whether the run cannot end before ``start`` does."""
        settings = self._settings
        gives_up = settings.fed_from_outside and settings.patience_seconds > 0
        return self._feeder is not None and not self._feeder.done() and not gives_up

    def _next_wake(self, now: float) -> float:
        times = [self._report_at]
        if self._items.unconfirmed:
            times.append(self._flush_at)
        if self._stop_by is not None:
            times.append(self._stop_by)
        elif self.paused:
            if self._settle_by is not None:
                times.append(self._settle_by)
        elif self._transport.away:
            times.append(now + _AWAY_SECONDS)
        else:
            # A frontier that is crowded is waited for by its answer.
            busy = self._pace.concurrency if self._is_crowded else self._busy
            wake = self._dispatcher.next_wake(busy=busy)
            if wake is not None:
                times.append(wake)
            if self._empty_since is not None:
                times.append(self._empty_since + self._patience)
        seeds = self._seed_client.next_wake(now)
        return min(times) if seeds is None else min(*times, seeds)

    def _depths(self) -> Depths:
        # What awaits the confirm of its items is in flight.
        return self._dispatcher.depths(busy=self._busy + self._items.waiting)
