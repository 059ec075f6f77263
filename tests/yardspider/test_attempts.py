"""Every attempt at a request is in exactly one place, whatever center and agents say, and when."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.yardspider.crawls import FAST, Follow, One, changed, check_books, check_counters, run
from yardkit.protocol import (
    Dispatched,
    DownloadRequest,
    DownloadsHeld,
    DownloadsRefused,
    FailureKind,
    RequestItem,
    RunCounters,
    Skipped,
    decode_request,
)
from yardspider import Request, Spider
from yardspider.accounting import CrawlAccounting
from yardspider.dispatcher import RequestDispatcher
from yardspider.errors import RunFailed
from yardspider.testing import (
    FakeCenter,
    HeldBack,
    NoAnswer,
    Page,
    PageLike,
    Refusal,
    Skip,
    Slow,
    crawl,
    page_answer,
)
from yardspider.transports.base import Answer


class Wire(FakeCenter):
    """Keeps what is sent; nothing comes back by itself."""

    def __init__(self, *, chained: bool) -> None:
        super().__init__({}, chained=chained)
        self.sent: list[RequestItem] = []

    def send(self, items: Sequence[RequestItem]) -> None:
        self.sent.extend(items)


class Books:
    """A dispatcher, moved step by step, whose books are checked after each."""

    def __init__(self, *, chained: bool = False, **options: Any) -> None:
        self.wire = Wire(chained=chained)
        self.accounting = CrawlAccounting()
        self.now = 50.0
        self.results = 0
        own = {"concurrency": 5, "held_limit": 3, "request_timeout_retries": 3} | options
        self.dispatcher = RequestDispatcher(
            changed(**own), self.wire, self.accounting, lambda response: response.status == 200
        )
        self.dispatcher.allocated(["a", "b"])

    def check(self) -> None:
        depths = self.dispatcher.depths(busy=0)
        check_counters(
            self.accounting.snapshot(run=1, incarnation="b", seq=1, depths=depths, failures=[])
        )
        assert self.accounting.left == depths.queued + depths.in_flight
        assert self.accounting.sent + self.accounting.retried == len(self.wire.sent)
        assert self.results == self.accounting.returned + self.accounting.duplicates

    def add(self, count: int) -> None:
        for _ in range(count):
            number = self.accounting.total + 1
            request = Request(f"http://h/{number}")
            request.agent = ("", "a", "b")[number % 3]
            self.dispatcher.enqueue(request)
        self.dispatcher.fill(self.now, busy=0)

    def take(self, answer: Answer) -> None:
        for _ in self.dispatcher.take(answer, self.now):
            self.accounting.success += 1
        self.dispatcher.fill(self.now, busy=0)

    def tell(self, what: str, which: int) -> None:
        """Something about one of all the attempts there ever were, or about one that was not."""
        sent = self.wire.sent
        item = sent[-1 - which % len(sent)] if sent else None
        items = [(item.id, item.attempt)] if item else [(77, 1)]
        told: dict[str, Answer] = {
            "skipped": Skipped(run=1, reason="none is alive", items=items),
            "refused": DownloadsRefused(run=1, reason="robots.txt", items=items),
            "held": DownloadsHeld(run=1, reason="slow host", wait_seconds=20.0, items=items),
            "dispatched": Dispatched(run=1, items=items),
        }
        if what in told:
            self.take(told[what])
        elif item is not None:
            pages: dict[str, Page | NoAnswer] = {
                "page": Page(200),
                "gone": Page(404),
                "busy": Page(503),
                "lost": NoAnswer(FailureKind.DOWNLOADER_MISSING),
            }
            self.results += 1
            self.take(page_answer(item, decode_request(item.request), pages[what], agent="a"))

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.dispatcher.tick(self.now)
        self.dispatcher.fill(self.now, busy=0)


TOLD = ["page", "gone", "busy", "lost", "skipped", "refused", "held", "dispatched"]
STEPS = st.one_of(
    st.tuples(st.just("add"), st.integers(1, 4)),
    st.tuples(st.just("wait"), st.sampled_from([0.1, 1.0, 4.0, 15.0, 36.0])),
    # Mostly about what was sent last, which is what is out.
    st.tuples(st.sampled_from(TOLD), st.one_of(st.integers(0, 4), st.integers(0, 40))),
)


@pytest.mark.slow("4 s")
@pytest.mark.covers("S1.19", "S1.45")
@settings(max_examples=300, deadline=None)
@given(steps=st.lists(STEPS, min_size=10, max_size=120), chained=st.booleans())
def test_the_books_balance_after_every_step(steps: list[Any], chained: bool) -> None:
    books = Books(chained=chained)
    books.add(3)
    books.check()
    for what, amount in steps:
        try:
            if what in TOLD:
                books.tell(what, amount)
            elif what == "add":
                books.add(amount)
            else:
                books.wait(amount)
        except RunFailed:
            break
        finally:
            books.check()
    out = books.dispatcher.depths(busy=0).out
    cancelled = books.accounting.cancelled
    books.dispatcher.cancel()
    books.check()
    assert books.accounting.cancelled == cancelled + out
    assert books.dispatcher.depths(busy=0)[2:] == (0, 0)


KINDS: list[PageLike] = [
    "",
    "<a href=1><a href=2><a href=3>",
    Page(404),
    Page(503),
    None,
    NoAnswer(),
    Slow(20, "<a href=4><a href=5>"),
    Slow(40, Page(503)),
    HeldBack(100, "<a href=6>"),
    HeldBack(3, Slow(20, "")),
    HeldBack(10, HeldBack(50, Skip())),
    HeldBack(10, Refusal()),
    Skip(),
    Refusal(),
]


@pytest.mark.slow("8 s")
@pytest.mark.covers("S1.19")
@pytest.mark.parametrize("seed", range(12))
async def test_every_report_of_a_run_balances(seed: int) -> None:
    chance = random.Random(seed)

    def page(request: DownloadRequest) -> PageLike:
        first = request.url == "http://h/"
        return "".join(f"<a href={n}>" for n in range(30)) if first else chance.choice(KINDS)

    class Frequent(Follow):
        settings = changed(statistics_seconds=0.5, concurrency=8, held_limit=4)

    center = FakeCenter(page)
    result = await crawl(Frequent, center)
    check_books(result)
    assert result.outcome.state == "exited"
    assert len(center.reports) > 10
    for report in center.reports:
        check_counters(report)
    last = result.counters
    assert (last.out, last.held, last.cancelled) == (0, 0, 0)
    # All of it came to pass.
    assert min(last.returned, last.skipped, last.timed_out, last.refused, last.duplicates) > 0
    assert max(report.held for report in center.reports) > 0


# --- each place by itself -----------------------------------------------------------------------


def attempts(counters: RunCounters) -> dict[str, int]:
    """The places that are not empty."""
    names = ("returned", "skipped", "timed_out", "refused", "cancelled", "out", "duplicates")
    return {name: getattr(counters, name) for name in names if getattr(counters, name)}


def answering(*pages: PageLike) -> Any:
    """One page after the other, whatever is asked for."""
    one = iter(pages)
    return lambda request: next(one)


@pytest.mark.covers("S1.43")
def test_the_last_attempt_times_out_like_every_other() -> None:
    class Impatient(One):
        settings = changed(request_timeout_retries=2)

    counters = run(Impatient, answering(None, None, None)).counters
    assert (counters.sent, counters.retried, counters.failed) == (1, 2, 1)
    assert attempts(counters) == {"timed_out": 3}


@pytest.mark.covers("S1.45")
def test_a_late_page_takes_the_place_of_the_attempt_after_it() -> None:
    counters = run(One, answering(Slow(20, "late"), Slow(12, "later"))).counters
    assert counters.success == 1
    # The run had its page and did not wait for the second one.
    assert attempts(counters) == {"returned": 1, "timed_out": 1}


@pytest.mark.covers("S1.45")
def test_a_late_page_is_taken_while_its_request_waits_for_a_retry() -> None:
    pages = answering(Slow(15.5, "late"), Skip(), None)
    result = run(One, pages)
    assert (result.counters.success, result.counters.sent, result.counters.retried) == (1, 1, 1)
    assert attempts(result.counters) == {"returned": 1, "skipped": 1}


@pytest.mark.covers("S1.45")
def test_late_answers_to_a_request_that_has_its_page_are_duplicates() -> None:
    class Two(Spider):
        settings = FAST
        start_urls = ["http://h/slow", "http://h/long"]

    def page(request: DownloadRequest) -> PageLike:
        return Slow(16, "") if request.url.endswith("slow") else HeldBack(60, "")

    counters = run(Two, page).counters
    assert counters.success == 2
    assert attempts(counters) == {"returned": 2, "timed_out": 1, "duplicates": 1}


def test_what_is_out_when_a_run_fails_is_cancelled() -> None:
    result = run(One, lambda request: None)
    assert result.outcome.state == "failed"
    # 300 s of silence: 20 attempts timed out, the last one was out.
    assert attempts(result.counters) == {"timed_out": 19, "cancelled": 1}
