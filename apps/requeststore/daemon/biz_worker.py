"""Worker of one biz in one fetcher: takes, downloads and ends requests concurrently."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from django.db import connections

from apps.requeststore.daemon.batch_end import STOPS, BatchEnd, BizCounters, EndParts
from apps.requeststore.daemon.dead_letters import dead_letter_function
from apps.requeststore.daemon.downloads import Downloads
from apps.requeststore.daemon.page_extractor import PageExtractor
from apps.requeststore.daemon.page_keeping import keep_pages
from apps.requeststore.daemon.plans import (
    BizPlan,
    WorkerContext,
    new_queue,
    new_sink,
    new_transport,
)
from apps.requeststore.daemon.request_taker import RequestTaker
from apps.requeststore.daemon.work import OUTAGES, LeasedRequest, Result
from apps.requeststore.engine.biz import DownloaderKind
from apps.requeststore.engine.errors import RequestStoreError
from apps.requeststore.queues.base import RequestQueue
from apps.requeststore.sinks.base import Sink
from yardkit import failpoints
from yardkit.outage import Outage

logger = logging.getLogger(__name__)

T = TypeVar("T")

# Poll interval (seconds) of an empty queue: first, and after repeated empty polls.
FIRST_LOOK_SECONDS: Final = 0.02
LAST_LOOK_SECONDS: Final = 0.5
# Seconds for which ended requests wait to form a batch.
GATHER_SECONDS: Final = 0.1
MOST_AT_ONCE: Final = 500
FIRST_WAIT_SECONDS: Final = 0.2
LONGEST_WAIT_SECONDS: Final = 10.0
# Share of the lease reserved for storing records and flag.
ENDING_SHARE: Final = 0.1
MOST_ENDING_SECONDS: Final = 30.0


class BizWorker:
    """Belongs to one event loop; blocking work runs in two threads.

    ``use`` changes the settings at any time: requests taken from then on follow the new plan,
    leased ones the plan under which they were taken.
    """

    def __init__(self, context: WorkerContext, plan: BizPlan) -> None:
        self._context = context
        self._plan = plan
        self._used: BizPlan | None = None
        self._taker: RequestTaker | None = None
        self._downloads: Downloads | None = None
        # Earlier plans with unfinished requests.
        self._former: list[Downloads] = []
        self._parts: EndParts | None = None
        # Unfinished requests by the parts they were leased under.
        self._taken_with: dict[EndParts, int] = {}
        self._ended: list[tuple[LeasedRequest, Result]] = []
        self._first_ended_at = 0.0
        self._news = asyncio.Event()
        self._changed = asyncio.Event()
        self._taking: asyncio.Task[int] | None = None
        self._ending: BatchEnd | None = None
        self._pool = ThreadPoolExecutor(2, thread_name_prefix=f"biz-{plan.bound.name}")
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False
        self._away = {"take": "", "end": ""}
        self._flaw = ""
        self.tally = BizCounters()
        self.idle = False

    @property
    def name(self) -> str:
        """Return the biz for logs and pages: ``p7.news``."""
        return f"p{self._plan.bound.project_id}.{self._plan.bound.name}"

    @property
    def in_hand(self) -> int:
        """Return the number of leased requests that have not ended."""
        return sum(self._taken_with.values())

    @property
    def problem(self) -> str:
        """Return why work does not progress; "" normally."""
        downloads = self._downloads.problem if self._downloads is not None else ""
        away = self._away["take"] or self._away["end"]
        return self._flaw or away or (downloads if self.in_hand else "")

    def start(self) -> None:
        """Start the two tasks that take and end requests."""
        self._tasks = [
            asyncio.create_task(self._go_on("take", self._take)),
            asyncio.create_task(self._go_on("end", self._end)),
        ]

    def use(self, plan: BizPlan) -> None:
        """Use this plan from the next request on."""
        self._plan = plan
        self._changed.set()

    async def _go_on(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Repeat ``work`` until cancelled; after an error, a back-off with one line in the log."""
        outage = Outage(
            logger, f"{self.name}: {name}", first=FIRST_WAIT_SECONDS, longest=LONGEST_WAIT_SECONDS
        )
        while True:
            try:
                await work()
            except OUTAGES as error:
                pause = outage.failed(error)
            except Exception as error:
                if not outage.lasting:
                    logger.exception("%s: unforeseen error", self.name)
                pause = outage.failed(error)
            else:
                outage.recovered()
                self._away[name] = ""
                continue
            self._away[name] = outage.error[:300]
            await asyncio.sleep(pause)

    async def _aside(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    # --- taking ---------------------------------------------------------------------------------

    async def _take(self) -> None:
        """Take requests until none waits or the plan changes."""
        if self._used is not self._plan:
            await self._adopt(self._plan)
        if self._flaw:
            await self._until_changed(LONGEST_WAIT_SECONDS)
            self._used = None
            return
        wait = FIRST_LOOK_SECONDS
        while self._used is self._plan:
            room = self._limit() - self.in_hand
            if room <= 0 or self._away["end"]:
                # While records or flags cannot be stored, further downloads would only pile up.
                await self._until_changed(LAST_LOOK_SECONDS)
            elif await self._take_some(room):
                return
            else:
                self.idle = True
                self._away["take"] = ""
                await self._until_changed(wait)
                wait = min(LAST_LOOK_SECONDS, wait * 1.5)

    async def _until_changed(self, seconds: float) -> None:
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    def _limit(self) -> int:
        """Return how many requests may be leased: the active downloads, and as many waiting ones
        where the lease leaves time for them.
        """
        biz = self._plan.bound.settings
        rounds = int(_own_seconds(biz.take_seconds) // biz.fetch.timeout_seconds)
        return biz.fetch.concurrency * max(1, min(2, rounds))

    async def _take_some(self, most: int) -> int:
        priority = self._plan.bound.settings.priority
        number = await self._context.room.get(self.name, most, priority=priority)
        # Shielded: requests leased by the thread must not get lost at a cancellation.
        self._taking = asyncio.create_task(self._take_number(number))
        return await asyncio.shield(self._taking)

    async def _take_number(self, number: int) -> int:
        taker, parts, downloads = self._taker, self._parts, self._downloads
        assert taker is not None  # noqa: S101 - _adopt comes first
        assert parts is not None  # noqa: S101 - as above
        assert downloads is not None  # noqa: S101 - as above
        now = self._context.sinks.now()
        expires = asyncio.get_running_loop().time()
        expires += _own_seconds(taker.bound.settings.take_seconds)
        works: Sequence[LeasedRequest] = []
        try:
            works = await self._aside(lambda: taker.take(number, now=now, expires=expires))
        finally:
            self._context.room.put(number - len(works))
        if works:
            self.idle = False
            for work in works:
                work.parts = parts
            self._taken_with[parts] = self._taken_with.get(parts, 0) + len(works)
            downloads.offer(works)
        return len(works)

    # --- plans ----------------------------------------------------------------------------------

    async def _adopt(self, plan: BizPlan) -> None:
        """Switch to a plan; a setting that cannot be used becomes ``problem``."""
        try:
            parts = await self._aside(lambda: self._make_parts(plan))
            downloads = self._make_downloads(plan)
        except RequestStoreError as error:
            if self._flaw != str(error)[:300]:
                self._flaw = str(error)[:300]
                logger.warning("%s cannot be served: %s", self.name, error)
            self._used = plan
            return
        self._flaw = ""
        context = self._context
        dead_letter = dead_letter_function(plan.bound, context.sinks.broker, context.redis_prefix)
        self._taker = RequestTaker(
            plan.bound, parts.queue, context.request_store, context.owner, dead_letter
        )
        self._parts = parts
        if downloads is not self._downloads:
            await self._change_downloads(downloads)
        self._used = plan
        await self._close_former()

    async def _change_downloads(self, new: Downloads) -> None:
        before, self._downloads = self._downloads, new
        if before is None:
            return
        if before.shares_agents:
            # The center keeps one allocation a slot: the old downloads must give it back first.
            works = before.abandon()
            await before.close()
        else:
            works = before.withdraw()
            self._former.append(before)
        new.offer(works)

    def _make_parts(self, plan: BizPlan) -> EndParts:
        old, bound = self._parts, plan.bound
        same = old is not None and old.bound.queue_name == bound.queue_name
        queue = old.queue if old is not None and same else new_queue(self._context, bound)
        records = bound.settings.records
        keeps = old is not None and old.bound.settings.records == records
        sink = old.sink if old is not None and keeps else new_sink(self._context, bound)
        return EndParts(bound, PageExtractor(bound.settings.rules), sink, queue, plan.pages)

    def _make_downloads(self, plan: BizPlan) -> Downloads:
        """Return the current downloads when their settings have not changed, else new ones."""
        used, fetch = self._used, plan.bound.settings.fetch
        if used is not None and self._downloads is not None:
            same = (used.bound.settings.fetch, used.networks, used.slot)
            if same == (fetch, plan.networks, plan.slot):
                return self._downloads
        return Downloads(
            make_transport=lambda done: new_transport(self._context, plan, done),
            concurrency=fetch.concurrency,
            ended=self._note_end,
            shares_agents=fetch.through is DownloaderKind.CENTER,
        )

    async def _close_former(self) -> None:
        """Close downloads, queues and sinks of earlier plans once their requests have ended."""
        for downloads in [extraction for extraction in self._former if not extraction.count]:
            self._former.remove(downloads)
            await downloads.close()
        for parts in [extraction for extraction, number in self._taken_with.items() if not number]:
            if parts is not self._parts:
                del self._taken_with[parts]
                await self._aside(lambda parts=parts: self._close_parts(parts))  # type: ignore[misc]  # bound now

    def _close_parts(self, parts: EndParts) -> None:
        """Close queue and sink, unless other parts share them."""
        others = [extraction for extraction in self._taken_with if extraction is not parts]
        if self._parts is not None and self._parts is not parts:
            others.append(self._parts)
        if all(other.queue is not parts.queue for other in others):
            self._close_one(parts.queue)
        if all(other.sink is not parts.sink for other in others):
            self._close_one(parts.sink)

    def _close_one(self, one: RequestQueue | Sink) -> None:
        try:
            one.close()
        except Exception:
            logger.exception("%s: a %s could not be closed", self.name, type(one).__name__)

    # --- ending ---------------------------------------------------------------------------------

    def _note_end(self, work: LeasedRequest, result: Result) -> None:
        if not self._ended:
            self._first_ended_at = time.monotonic()
        self._ended.append((work, result))
        self._news.set()
        failpoints.hit("fetcher.downloaded")

    async def _end(self) -> None:
        """End one batch."""
        if self._ending is None:
            await self._gather()
            self._ending = self._next_ending()
        ending = self._ending
        await asyncio.shield(self._aside(ending.step))
        self._ending = None
        keep_pages(self._context.keeper, ending)
        if ending.rest:
            self._ended[:0] = ending.rest
            self._news.set()
        self._taken_with[ending.parts] -= len(ending.ended)
        self._context.room.put(len(ending.ended))
        self._changed.set()
        if len(self._taken_with) > 1 or self._former:
            await self._close_former()

    async def _gather(self) -> None:
        """Wait for a batch: enough ended requests, or the first one is ``GATHER_SECONDS`` old."""
        while True:
            self._news.clear()
            if not self._ended:
                await self._news.wait()
                continue
            waited = time.monotonic() - self._first_ended_at
            enough = min(MOST_AT_ONCE, max(1, self.in_hand // 2))
            if self._stopping or len(self._ended) >= enough or waited >= GATHER_SECONDS:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GATHER_SECONDS - waited):
                    await self._news.wait()

    def _next_ending(self) -> BatchEnd:
        """Batch the ended requests that share the parts of the first one."""
        parts: EndParts = self._ended[0][0].parts
        batch: list[tuple[LeasedRequest, Result]] = []
        rest: list[tuple[LeasedRequest, Result]] = []
        for end in self._ended:
            fits = end[0].parts is parts and len(batch) < MOST_AT_ONCE
            (batch if fits else rest).append(end)
        self._ended = rest
        if rest:
            self._news.set()
        context = self._context
        return BatchEnd(
            parts, context.request_store, context.owner, context.sinks.now, batch, self.tally
        )

    # --- the end --------------------------------------------------------------------------------

    async def stop(self, seconds: float) -> None:
        """Stop within ``seconds``: take no more, return waiting requests, end active ones."""
        until = time.monotonic() + seconds
        self._stopping = True
        if self._tasks:
            self._tasks[0].cancel()
            await asyncio.wait([self._tasks[0]])
        if self._taking is not None:
            await asyncio.wait([self._taking], timeout=seconds / 3)
        lines = list(self._former)
        if self._downloads is not None:
            lines.append(self._downloads)
        for work in [work for downloads in lines for work in downloads.withdraw()]:
            self._note_end(work, STOPS)
        await self._until_ended(until - seconds / 3)
        for work in [work for downloads in lines for work in downloads.abandon()]:
            self._note_end(work, STOPS)
        await self._until_ended(until)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for downloads in lines:
            await downloads.close()
        await self._aside(self._let_go)
        if self.in_hand:
            logger.warning("%s: %d requests come back by themselves", self.name, self.in_hand)
            self._context.room.put(self.in_hand)
        self._context.room.forget(self.name)
        self._pool.shutdown(wait=False)

    async def _until_ended(self, until: float) -> None:
        while self.in_hand and time.monotonic() < until:
            self._news.set()
            await asyncio.sleep(0.02)

    def _let_go(self) -> None:
        if self._ending is not None:
            with contextlib.suppress(RequestStoreError):
                self._ending.give_up()
        everything = list(self._taken_with)
        if self._parts is not None:
            everything.append(self._parts)
        for queue in {id(parts.queue): parts.queue for parts in everything}.values():
            self._close_one(queue)
        for sink in {id(parts.sink): parts.sink for parts in everything}.values():
            self._close_one(sink)
        connections.close_all()


def _own_seconds(take_seconds: float) -> float:
    """Return how much of the lease may pass before the end must be stored."""
    return take_seconds - min(MOST_ENDING_SECONDS, take_seconds * ENDING_SHARE)
