"""Test a spider without network, broker or waiting.

    from yardspider.testing import run_spider

    result = run_spider(ShopSpider, {"http://shop.test/": "<a href='/1'>one</a>", ...})
    assert result.items == [...]

Time is virtual: pauses, speed limits, time-outs and retries pass in no time, in the right order.

What stands for a page may be more than its HTML: ``Page`` (a status, headers), ``NoAnswer`` (a
download that failed), ``None`` (nothing ever comes), ``Slow`` (it comes late), ``HeldBack`` (the
center spares the host and sends the request later), ``Skip`` (no agent is alive for it just now),
``Refusal`` (robots.txt forbids it). A function may answer each attempt differently:

    answers = iter([HeldBack(40, "fine"), Page(503), "fine"])
    result = run_spider(ShopSpider, lambda request: next(answers))
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from yardkit.protocol import (
    Dispatched,
    DownloaderSettings,
    DownloadRequest,
    DownloadResult,
    DownloadResults,
    DownloadsHeld,
    DownloadsRefused,
    FailureKind,
    FailureNote,
    HeaderPairs,
    Lifecycle,
    LifecycleAnswer,
    RequestItem,
    RunAction,
    RunCounters,
    Skipped,
    decode_request,
    header_pairs,
)
from yardspider.clock import Alarm
from yardspider.engine import CrawlEngine
from yardspider.outcome import CrawlOutcome
from yardspider.outputs import ItemList
from yardspider.resources.memory import MemoryPools
from yardspider.seeds.memory import MemoryFrontier
from yardspider.seeds.port import SeedCounts
from yardspider.seeds.seed import Seed
from yardspider.settings import SpiderSettings
from yardspider.spider import Spider
from yardspider.transports.base import AgentAllocation, Answer

AGENT = "fake"
_HTML = {"Content-Type": "text/html; charset=utf-8"}
# Longest wait for a real event (a callback that awaits a file) before virtual time moves on.
_REAL_SECONDS_A_STEP = 0.001
_LEAST_SECONDS = 1e-6
_TURNS_A_STEP = 20
# When the virtual clock begins, in ms since 1970: noon of 1 July 2026, UTC.
BEGIN_MS = 1_782_907_200_000
_BEGIN_SECONDS = 1000.0


class Page(NamedTuple):
    """A response. ``url`` is the final one, if it differs from the requested one."""

    status: int = 200
    headers: Mapping[str, str] | HeaderPairs = _HTML
    body: str | bytes = b""
    url: str = ""


class NoAnswer(NamedTuple):
    """A download that failed before there was an HTTP response."""

    failure: FailureKind = FailureKind.CONNECTION
    error: str = "connection refused"


class Slow(NamedTuple):
    """An answer that arrives a number of seconds after the request was sent."""

    seconds: float
    page: PageLike = ""


class HeldBack(NamedTuple):
    """The center holds the request for a number of seconds, then sends it on."""

    seconds: float
    page: PageLike = ""


class Skip(NamedTuple):
    """No agent is alive for the request, which is sent again later."""

    reason: str = "none of the run's agents is alive"


class Refusal(NamedTuple):
    """The center refuses the request: it has failed."""

    reason: str = "robots.txt forbids it"


# A page, its (status, headers, body), its HTML, one of the classes above, or None: no answer.
PageLike: TypeAlias = (
    "Page | tuple[int, Mapping[str, str], str | bytes] | str | bytes"
    " | NoAnswer | Slow | HeldBack | Skip | Refusal | None"
)
# Secrets by pool and name: one text, or several by name.
Resources: TypeAlias = Mapping[str, Mapping[str, "Mapping[str, str] | str"]]
Pages: TypeAlias = "Mapping[str, PageLike] | Callable[[DownloadRequest], PageLike]"


class VirtualClock:
    """A clock that jumps to the next due time as soon as no task can go on."""

    def __init__(self) -> None:
        self._now = _BEGIN_SECONDS
        self._numbers = itertools.count()
        self._calls: list[tuple[float, int, Callable[[], None]]] = []

    def now(self) -> float:
        return self._now

    def milliseconds(self) -> int:
        """Return the time of day in ms, for a frontier."""
        return BEGIN_MS + int((self._now - _BEGIN_SECONDS) * 1000)

    def pass_by(self, seconds: float) -> None:
        """Let time pass; called by a callback that is slow in virtual time."""
        self._now += seconds

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        """Schedule a call in a number of seconds."""
        heapq.heappush(self._calls, (self._now + seconds, next(self._numbers), call))

    async def wait(self, alarm: Alarm, until: float | None) -> None:
        # Whatever needs no time goes first, however slow the machine is.
        for _ in range(_TURNS_A_STEP):
            if alarm.rung:
                break
            await asyncio.sleep(0)
        times = [due for due, _, _ in self._calls[:1]]
        if until is not None:
            times.append(until)
        if not times:
            await alarm.wait(None)
        elif not await alarm.wait(_REAL_SECONDS_A_STEP):
            # It always advances: a wake-up one rounding error too early would repeat without end.
            self._now = max(self._now + _LEAST_SECONDS, min(times))
        while self._calls and self._calls[0][0] <= self._now:
            heapq.heappop(self._calls)[2]()


class FakeCenter:
    """Center and agents in one object: a transport that answers from ``pages``.

    Args:
        pages: answers by URL (others get a 404), or a function of ``DownloadRequest``.

    ``requests``: every request in the order sent, retries included. ``reports``: every published
    ``RunCounters``. ``commands``: every answer to ``tell``. ``clock``: that of the crawl.
    """

    run = 1
    incarnation = "test"
    away = False

    def __init__(self, pages: Pages, *, chained: bool = False) -> None:
        self._pages = pages
        self.chained = chained
        self.clock = VirtualClock()
        self.requests: list[DownloadRequest] = []
        self.reports: list[RunCounters] = []
        self.commands: list[LifecycleAnswer] = []
        self.closed = False
        self._on_command: Callable[[Lifecycle], None] | None = None
        self._held: set[tuple[int, int]] = set()
        self._answers: list[Answer] = []
        self._arrived = asyncio.Event()

    async def allocate(self) -> AgentAllocation:
        return AgentAllocation([AGENT])

    def send(self, items: Sequence[RequestItem]) -> None:
        for item in items:
            request = decode_request(item.request)
            self.requests.append(request)
            for answer in self.answer(item, request):
                self.deliver(answer)

    def answer(self, item: RequestItem, request: DownloadRequest) -> Sequence[Answer]:
        """Return the immediate answers to one request; override it to answer twice, or not.

        Later answers are passed to ``later``.
        """
        pages = self._pages
        if isinstance(pages, Mapping):
            return self.respond(item, request, pages.get(request.url, Page(404)))
        return self.respond(item, request, pages(request))

    def respond(
        self, item: RequestItem, request: DownloadRequest, page: PageLike
    ) -> Sequence[Answer]:
        """Return the immediate messages of center and agents for a page; schedule the others."""
        which = [(item.id, item.attempt)]
        if page is None:
            return []
        if isinstance(page, Refusal):
            return [DownloadsRefused(run=self.run, reason=page.reason, items=which)]
        if isinstance(page, Skip):
            return [Skipped(run=self.run, reason=page.reason, items=which)]
        if isinstance(page, Slow):
            self.later(page.seconds, lambda: self.respond(item, request, page.page))
            return []
        if isinstance(page, HeldBack):
            self._held.update(which)
            self.later(page.seconds, lambda: self._send_on(item, request, page.page))
            reason = "its host is spared"
            wait = page.seconds
            return [DownloadsHeld(run=self.run, reason=reason, wait_seconds=wait, items=which)]
        return [page_answer(item, request, page, run=self.run)]

    def _send_on(
        self, item: RequestItem, request: DownloadRequest, page: PageLike
    ) -> Sequence[Answer]:
        which = (item.id, item.attempt)
        if which not in self._held:
            return []  # the run has wanted it back
        self._held.discard(which)
        sent_on = Dispatched(run=self.run, items=[which])
        return [sent_on, *self.respond(item, request, page)]

    def withdraw(self) -> None:
        """Return what is held to the paused run."""
        if self._held:
            items, self._held = sorted(self._held), set()
            reason = "the run has paused"
            self.deliver(Skipped(run=self.run, reason=reason, items=items, withdrawn=True))

    def listen(self, on_command: Callable[[Lifecycle], None]) -> None:
        self._on_command = on_command

    def tell(
        self, action: RunAction | str, command: int = 0, reason: str = "", **settings: Any
    ) -> None:
        """Send the run a command (pause, resume, exit, tune) as an operator does.

        Once it has begun; ``settings`` are those of ``tune``.
        """
        if self._on_command is not None:
            message = Lifecycle(
                action=RunAction(action),
                run=self.run,
                command=command,
                reason=reason,
                settings=settings,
            )
            self._on_command(message)

    def answer_command(self, answer: LifecycleAnswer) -> None:
        self.commands.append(answer)

    def later(self, seconds: float, answers: Callable[[], Sequence[Answer]]) -> None:
        """Deliver answers in a number of seconds."""

        def deliver() -> None:
            for answer in answers():
                self.deliver(answer)

        self.clock.call_later(seconds, deliver)

    def deliver(self, answer: Answer) -> None:
        """Put an answer into the run's queue."""
        self._answers.append(answer)
        self._arrived.set()

    async def receive(self) -> Sequence[Answer]:
        await self._arrived.wait()
        self._arrived.clear()
        answers, self._answers = self._answers, []
        return answers

    async def report(self, counters: RunCounters) -> None:
        self.reports.append(counters)

    async def close(self) -> None:
        self.closed = True


def recorded(path: Path | str) -> Callable[[DownloadRequest], Page | NoAnswer]:
    """Return pages of a recording: a WARC or HAR file, a folder with such files or with hosts.

    What is not recorded fails as ``not_recorded``. Raises ``RecordingError``.
    """
    from yardkit.recordings import open_recording
    from yardkit.recordings.replay import Replay

    replay = Replay(open_recording(Path(path)), DownloaderSettings())

    def page(request: DownloadRequest) -> Page | NoAnswer:
        fetched = replay.answer(request)
        if fetched.failure:
            return NoAnswer(fetched.failure, fetched.error)
        return Page(fetched.status, fetched.raw_headers, fetched.body, fetched.url)

    return page


def page_answer(
    item: RequestItem,
    request: DownloadRequest,
    page: Page | tuple[int, Mapping[str, str], str | bytes] | str | bytes | NoAnswer,
    *,
    run: int = 1,
    agent: str = AGENT,
) -> DownloadResults:
    """Return the message of an agent for a page."""
    if isinstance(page, NoAnswer):
        result = DownloadResult(
            item.id, item.attempt, request.url, 0, [], b"", page.failure, page.error
        )
    else:
        if isinstance(page, (str, bytes)):
            page = Page(body=page)
        status, headers, body, url = Page(*page)
        body = body.encode() if isinstance(body, str) else body
        result = DownloadResult(
            item.id, item.attempt, url or request.url, status, header_pairs(headers), body
        )
    return DownloadResults(run=run, agent=agent, items=[result])


@dataclass(frozen=True, slots=True)
class CrawlResult:
    """What a spider did: its items, how it ended, the counters, and the requests it sent.

    ``frontier``: every seed with its final state, under ``seeds``. ``pools``: every use of a
    resource, under ``uses``. ``files``: the content of each kept file by name.
    """

    items: list[dict[str, Any]]
    outcome: CrawlOutcome
    requests: list[DownloadRequest]
    frontier: MemoryFrontier
    pools: MemoryPools
    files: Mapping[str, bytes]

    @property
    def seeds(self) -> SeedCounts:
        """What the run did with seeds."""
        return self.outcome.seeds

    @property
    def counters(self) -> RunCounters:
        return self.outcome.counters

    @property
    def failures(self) -> Sequence[FailureNote]:
        return self.outcome.failures


async def crawl(
    spider: Spider | type[Spider],
    pages: Pages | FakeCenter,
    *,
    arguments: Mapping[str, Any] | None = None,
    settings: SpiderSettings | None = None,
    seeds: Iterable[str | Seed] = (),
    frontier: MemoryFrontier | None = None,
    resources: Resources | None = None,
) -> CrawlResult:
    """``run_spider`` for asynchronous tests, or tests with a frontier of their own."""
    made = spider(arguments) if isinstance(spider, type) else spider
    center = pages if isinstance(pages, FakeCenter) else FakeCenter(pages)
    items = ItemList()
    frontier = frontier or MemoryFrontier(seeds)
    frontier.use_clock(center.clock.milliseconds)
    pools = MemoryPools(resources or {})
    engine = CrawlEngine(
        made,
        settings or made.settings,
        center,
        items,
        clock=center.clock,
        frontier=frontier,
        pools=pools,
    )
    outcome = await engine.run()
    return CrawlResult(items.items, outcome, center.requests, frontier, pools, items.files)


def run_spider(
    spider: Spider | type[Spider],
    pages: Pages,
    *,
    arguments: Mapping[str, Any] | None = None,
    settings: SpiderSettings | None = None,
    seeds: Iterable[str | Seed] = (),
    resources: Resources | None = None,
) -> CrawlResult:
    """Run a spider against ``pages`` to its end, in this process and in virtual time.

    ``seeds``: initial content of its frontier; the first day is 1 July 2026.
    ``resources``: secrets that it may lease, by pool and name.
    """
    return asyncio.run(
        crawl(
            spider, pages, arguments=arguments, settings=settings, seeds=seeds, resources=resources
        )
    )
