"""The engine: requests the center holds back, refuses, or has no agent for; in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from tests.yardspider.crawls import FAST, One, changed, check_books, check_counters, run
from yardkit.protocol import Dispatched, DownloadRequest, DownloadsHeld, RequestItem
from yardspider import Spider
from yardspider.engine import CrawlEngine
from yardspider.outputs import ItemList
from yardspider.testing import FakeCenter, HeldBack, PageLike, Refusal, Slow, crawl, page_answer
from yardspider.transports.base import Answer


@pytest.mark.slow("1 s")
def test_a_request_that_is_held_does_not_time_out() -> None:
    result = run(One, lambda request: HeldBack(500, "fine"))
    assert (result.outcome.state, result.counters.success) == ("exited", 1)
    # Neither its own time-out, nor the silence that ends a run, came in between.
    assert (result.counters.retried, result.counters.timed_out) == (0, 0)
    assert 500 <= result.outcome.seconds < 501


def test_the_time_out_starts_when_the_center_sends_it_on() -> None:
    class Impatient(One):
        settings = changed(request_timeout_retries=0)

    result = run(Impatient, lambda request: HeldBack(100, Slow(14, "fine")))
    assert (result.counters.success, result.counters.timed_out) == (1, 0)
    result = run(Impatient, lambda request: HeldBack(100, None))
    assert result.failures[0].reason == "no answer within 15 s, sent 1 times"
    assert 115 <= result.outcome.seconds < 116


class Scripted(FakeCenter):
    """Says what the script says, at its times, of the first attempt; answers every other."""

    def __init__(self, *script: tuple[float, str]) -> None:
        super().__init__(lambda request: "")
        self.script = script

    def answer(self, item: RequestItem, request: DownloadRequest) -> Sequence[Answer]:
        if item.attempt > 1:
            return super().answer(item, request)
        which = [(item.id, item.attempt)]
        for seconds, what in self.script:
            said: Answer
            if what == "page":
                said = page_answer(item, request, "first")
            elif what == "dispatched":
                said = Dispatched(run=1, items=which)
            else:
                said = DownloadsHeld(run=1, reason="slow", wait_seconds=float(what), items=which)
            self.clock.call_later(seconds, partial(self.deliver, said))
        return []


@pytest.mark.parametrize(
    ("script", "times_out_at"),
    [
        # now + wait_seconds + request_timeout_seconds
        ([(1, "10")], 26),
        # A further word replaces the one before, whether it puts the end off or brings it near.
        ([(1, "10"), (20, "40")], 75),
        ([(1, "100"), (20, "5")], 40),
        ([(1, "0")], 16),
        # A center that talks nonsense is as good as one that says "now".
        ([(1, "nan")], 16),
        ([(1, "inf")], 16),
        ([(1, "-5")], 16),
        ([(1, "100"), (30, "dispatched")], 45),
        # The word that it was held was lost.
        ([(7, "dispatched")], 22),
        ([(1, "100"), (3, "dispatched"), (4, "50")], 69),
    ],
)
async def test_when_a_held_request_is_given_up(
    script: list[tuple[float, str]], times_out_at: float
) -> None:
    result = await crawl(One, Scripted(*script))
    check_books(result)
    assert (result.counters.timed_out, result.counters.success) == (1, 1)
    assert times_out_at <= result.outcome.seconds < times_out_at + 0.5


async def test_an_answer_may_overtake_the_word_that_it_was_sent_on() -> None:
    result = await crawl(One, Scripted((1, "100"), (30, "page"), (31, "dispatched")))
    check_books(result)
    assert (result.counters.success, result.counters.duplicates) == (1, 0)
    assert 30 <= result.outcome.seconds < 30.5


async def test_what_is_said_of_another_attempt_changes_nothing() -> None:
    # The first attempt times out at 15 s; the second one is not the one that is held.
    class Deaf(Scripted):
        def answer(self, item: RequestItem, request: DownloadRequest) -> Sequence[Answer]:
            return [] if item.attempt == 2 else super().answer(item, request)

    result = await crawl(One, Deaf((20, "100"), (21, "dispatched")))
    check_books(result)
    assert result.counters.timed_out == 2
    assert 30 <= result.outcome.seconds < 30.5


@pytest.mark.slow("3 s")
@pytest.mark.covers("S1.44")
async def test_a_center_that_vanishes_with_what_it_held_is_silent_from_then_on() -> None:
    class Vanishing(FakeCenter):
        def answer(self, item: RequestItem, request: DownloadRequest) -> Sequence[Answer]:
            which = [(item.id, item.attempt)]
            if item.attempt > 1:
                return []
            return [DownloadsHeld(run=1, reason="slow", wait_seconds=1000, items=which)]

    result = await crawl(One, Vanishing({}))
    check_books(result)
    assert result.outcome.state == "failed"
    assert "no answer for 300 s while 1 requests are out" in result.outcome.reason
    assert 1315 <= result.outcome.seconds < 1317


# --- the window -----------------------------------------------------------------------------------


def slow_and_fast(request: DownloadRequest) -> PageLike:
    return HeldBack(100, "") if "slow" in request.url else ""


@pytest.mark.covers("S1.44")
async def test_one_slow_host_does_not_stop_the_others() -> None:
    class Both(Spider):
        settings = changed(concurrency=3)
        start_urls = [f"http://slow/{n}" for n in range(50)] + [f"http://h/{n}" for n in range(9)]

    center = FakeCenter(slow_and_fast)
    result = await crawl(Both, center)
    check_books(result)
    assert result.counters.success == 59
    early = next(report for report in center.reports if report.success == 9)
    check_counters(early)
    assert (early.held, early.out, early.queued) == (50, 50, 0)


@pytest.mark.slow("1 s")
@pytest.mark.covers("S1.44")
async def test_so_many_may_be_held_and_no_more() -> None:
    class Slow(Spider):
        settings = changed(concurrency=4, held_limit=10)
        start_urls = [f"http://slow/{n}" for n in range(40)]

    center = FakeCenter(slow_and_fast)
    result = await crawl(Slow, center)
    check_books(result)
    assert result.counters.success == 40
    most = max(report.held for report in center.reports)
    # What is on its way when the limit is reached comes on top, at most a window of it.
    assert 10 <= most <= 10 + 3
    assert 400 <= result.outcome.seconds < 405


async def test_retries_go_on_while_too_many_are_held() -> None:
    pages: dict[str, list[PageLike]] = {
        "http://slow/": [HeldBack(100, "")],
        "http://h/": [(503, {}, ""), ""],
    }

    class Narrow(Spider):
        settings = changed(held_limit=1)
        start_urls = ["http://h/", "http://slow/", "http://never/"]

    def page(request: DownloadRequest) -> PageLike:
        return pages[request.url].pop(0)

    pages["http://never/"] = [""]
    center = FakeCenter(page)
    result = await crawl(Narrow, center)
    check_books(result)
    assert [request.url for request in center.requests].count("http://h/") == 2
    early = next(report for report in center.reports if report.retried)
    assert (early.held, early.success) == (1, 2)


@pytest.mark.slow("3 s")
@pytest.mark.covers("S1.44")
def test_a_request_sent_after_a_long_hold_has_its_own_time() -> None:
    """Silence counts from when an answer could come, not from when the center last spoke."""

    class Later(Spider):
        settings = changed(speed=0.0025, no_answer_seconds=60)  # one in 400 s
        start_urls = ["http://slow/", "http://h/"]

    answers: dict[str, PageLike] = {"http://slow/": HeldBack(1000, ""), "http://h/": Slow(10, "")}
    result = run(Later, lambda request: answers[request.url])
    assert (result.outcome.state, result.counters.success) == ("exited", 2)


async def test_a_stop_does_not_wait_for_what_is_held() -> None:
    center = FakeCenter(lambda request: HeldBack(1000, ""))
    engine = CrawlEngine(One(), FAST, center, ItemList(), clock=center.clock)
    center.clock.call_later(10, lambda: engine.stop("SIGTERM"))
    outcome = await engine.run()
    assert outcome.state == "stopped"
    assert 10 <= outcome.seconds < 10.5
    check_counters(outcome.counters)
    assert (outcome.counters.cancelled, outcome.counters.out, outcome.counters.held) == (1, 0, 0)


# --- refused --------------------------------------------------------------------------------------


def test_a_refused_request_has_failed_for_good() -> None:
    class Two(Spider):
        settings = FAST
        start_urls = ["http://h/private", "http://h/"]

    answers: dict[str, Any] = {"http://h/private": Refusal(), "http://h/": ""}
    result = run(Two, answers)
    counters = result.counters
    assert result.outcome.state == "exited"
    assert (counters.success, counters.failed, counters.refused) == (1, 1, 1)
    assert (counters.retried, counters.returned) == (0, 1)
    assert result.failures[0].reason == "refused: robots.txt forbids it"
    assert result.failures[0].status == 0


def test_a_run_of_which_everything_is_refused_says_why_it_failed() -> None:
    result = run(One, lambda request: HeldBack(3, Refusal("robots.txt of h forbids it")))
    assert result.outcome.state == "failed"
    assert "refused: robots.txt of h forbids it (http://h/)" in result.outcome.reason


# --- a transport that is away ---------------------------------------------------------------------


@pytest.mark.slow("3 s")
@pytest.mark.covers("S1.42")
async def test_nothing_times_out_while_no_answer_can_come() -> None:
    answers: list[PageLike] = [None, ""]
    center = FakeCenter(lambda request: answers.pop(0))

    class Two(Spider):
        settings = changed(speed=0.2)  # one in 5 s
        start_urls = ["http://h/"]

    center.clock.call_later(5, lambda: setattr(center, "away", True))
    center.clock.call_later(705, lambda: setattr(center, "away", False))
    result = await crawl(Two, center)
    check_books(result)
    # 5 s before and 10 s after make the 15 s of one time-out, not 47 of them or a silence.
    assert (result.counters.success, result.counters.timed_out) == (1, 1)
    assert 714 <= result.outcome.seconds < 717
