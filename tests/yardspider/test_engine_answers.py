"""The engine: answers that never come, come late, twice, or say no; in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.yardspider.crawls import FAST, One, changed, check_books, run
from yardkit.protocol import DownloadRequest, FailureKind, RequestItem, Skipped
from yardspider import Request, Response, Spider
from yardspider.engine import CrawlEngine
from yardspider.outputs import ItemList
from yardspider.testing import (
    FakeCenter,
    NoAnswer,
    Page,
    PageLike,
    Pages,
    VirtualClock,
    crawl,
    page_answer,
)
from yardspider.transports.base import Answer


# --- answers that never come, come late, or twice ---------------------------------------------
@pytest.mark.covers("S1.43")
def test_an_unanswered_request_is_sent_again_and_then_fails() -> None:
    pages: Pages = lambda request: None if request.url.endswith("silent") else ""  # noqa: E731

    class Silent(Spider):
        settings = changed(request_timeout_retries=3)
        start_urls = ["http://h/silent", "http://h/fine"]

    result = run(Silent, pages)
    assert result.outcome.state == "failed"
    assert result.outcome.reason == (
        "1 of 2 requests were not answered by the platform after 3 retries; "
        "are the center and the run's agents alive?"
    )
    counters = result.counters
    assert (counters.success, counters.failed) == (1, 1)
    assert (counters.sent, counters.retried) == (2, 3)
    assert [r.url for r in result.requests].count("http://h/silent") == 4
    assert result.failures[0].reason == "no answer within 15 s, sent 4 times"
    assert 60 <= result.outcome.seconds < 62


@pytest.mark.covers("S1.43")
def test_twenty_retries_by_default() -> None:
    class Patient(Spider):
        settings = changed(no_answer_seconds=1000)
        start_urls = ["http://h/"]

    result = run(Patient, lambda request: None)
    assert result.outcome.state == "failed"
    assert len(result.requests) == 21
    assert 315 <= result.outcome.seconds < 317


@pytest.mark.covers("S1.44", "S1.59")
def test_total_silence_fails_the_run() -> None:
    result = run(One, lambda request: None)
    assert result.outcome.state == "failed"
    assert "no answer for 300 s while 1 requests are out" in result.outcome.reason
    assert 300 <= result.outcome.seconds < 302
    assert result.outcome.accounting.left == 1


@pytest.mark.slow("2 s")
@pytest.mark.covers("S1.44")
def test_an_idle_run_is_not_a_silent_one() -> None:
    class Rare(Spider):
        settings = changed(speed=0.002)
        start_urls = ["http://h/1", "http://h/2", "http://h/3"]

    assert run(Rare, lambda request: "").outcome.state == "exited"


class Late(FakeCenter):
    """Answers the first attempt only when the second one is sent, then both."""

    def __init__(self) -> None:
        super().__init__({})
        self.first: Answer | None = None

    def answer(self, item: RequestItem, request: DownloadRequest) -> Sequence[Answer]:
        answer = page_answer(item, request, f"attempt {item.attempt}")
        if item.attempt == 1:
            self.first = answer
            return []
        assert self.first is not None
        return [self.first, answer, answer]


class Texts(Spider):
    settings = FAST
    start_urls = ["http://h/"]

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"text": response.text}


@pytest.mark.covers("S1.45")
async def test_a_late_answer_counts_and_later_ones_are_duplicates() -> None:
    result = await crawl(Texts, Late())
    check_books(result)
    assert result.items == [{"text": "attempt 1"}]
    counters = result.counters
    assert (counters.success, counters.returned, counters.duplicates) == (1, 1, 2)
    assert (counters.sent, counters.retried) == (1, 1)


class LateFailure(Late):
    """The first attempt fails, but says so only when the second one is out."""

    def answer(self, item: RequestItem, request: DownloadRequest) -> Sequence[Answer]:
        if item.attempt == 1:
            self.first = page_answer(item, request, NoAnswer())
            return []
        assert self.first is not None
        return [self.first, page_answer(item, request, "fine")]


@pytest.mark.covers("S1.45")
async def test_a_late_failure_does_not_start_a_third_attempt() -> None:
    center = LateFailure()
    result = await crawl(Texts, center)
    check_books(result)
    assert result.items == [{"text": "fine"}]
    assert len(center.requests) == 2
    assert result.counters.duplicates == 1


class Sleepy(Spider):
    """Its first callback holds up everything for 40 s."""

    settings = FAST
    start_urls = ["http://h/1", "http://h/2"]
    clock = VirtualClock()

    def parse(self, response: Response) -> None:
        if response.url.endswith("1"):
            self.clock.pass_by(40)

    async def later(self, response: Response) -> None:
        self.parse(response)


class SecondIsLater(FakeCenter):
    """The answer to the second request arrives while the callback of the first one runs."""

    def send(self, items: Sequence[RequestItem]) -> None:
        super().send([item for item in items if item.id == 1])
        second = [item for item in items if item.id == 2]
        asyncio.get_running_loop().call_later(0.0, lambda: FakeCenter.send(self, second))


@pytest.mark.parametrize("callback", ["parse", "later"])
async def test_a_slow_callback_does_not_time_others_out(callback: str) -> None:
    class Chosen(Sleepy):
        clock = VirtualClock()

        def start(self) -> list[Request]:
            return [Request(url, callback) for url in self.start_urls]

    center = SecondIsLater(lambda request: "")
    outcome = await CrawlEngine(Chosen(), FAST, center, ItemList(), clock=Chosen.clock).run()
    assert (outcome.counters.success, outcome.counters.retried) == (2, 0)
    assert len(center.requests) == 2


# --- failures ---------------------------------------------------------------------------------
class Flaky:
    """Fails so often, then answers."""

    def __init__(self, failure: PageLike, times: int) -> None:
        self.failure, self.times = failure, times

    def __call__(self, request: DownloadRequest) -> PageLike:
        self.times -= 1
        return self.failure if self.times >= 0 else ""


@pytest.mark.covers("S1.50")
@pytest.mark.parametrize(
    "failure",
    [
        NoAnswer(FailureKind.CONNECTION),
        NoAnswer(FailureKind.TIMEOUT),
        Page(500),
        Page(503),
        Page(429),
    ],
)
def test_what_may_pass_is_tried_five_times_again(failure: PageLike) -> None:
    result = run(One, Flaky(failure, 5))
    assert (result.counters.success, result.counters.retried) == (1, 5)
    assert result.counters.returned == 6
    result = run(One, Flaky(failure, 6))
    assert (result.counters.failed, result.counters.retried) == (1, 5)
    assert result.failures[0].reason.endswith("tried 6 times")


@pytest.mark.parametrize(
    "failure",
    [NoAnswer(FailureKind.BAD_REQUEST, "bad"), NoAnswer(FailureKind.ADDRESS_REFUSED, "private")]
    + [NoAnswer(FailureKind.TOO_MANY_REDIRECTS), NoAnswer(FailureKind.BAD_CONTENT)]
    + [Page(status) for status in (400, 401, 403, 404, 410, 418)],
)
def test_what_will_not_pass_fails_at_once(failure: PageLike) -> None:
    result = run(One, Flaky(failure, 1))
    assert (result.counters.failed, result.counters.retried) == (1, 0)


def test_retries_of_one_request_may_differ() -> None:
    class Own(Spider):
        settings = FAST

        def start(self) -> Iterator[Request]:
            yield Request("http://h/a", download_retries=0)
            yield Request("http://h/b", timeout_retries=0)

    pages = {"http://h/a": Page(503), "http://h/b": None}
    result = run(Own, pages)
    assert len(result.requests) == 2
    assert {note.reason for note in result.failures} == {
        "HTTP 503",
        "no answer within 15 s, sent 1 times",
    }


def test_retry_after_is_kept() -> None:
    result = run(One, Flaky(Page(429, {"Retry-After": "40"}), 1))
    assert result.outcome.state == "exited"
    assert 40 <= result.outcome.seconds < 42


def test_a_missing_downloader_uses_the_larger_budget() -> None:
    missing = NoAnswer(FailureKind.DOWNLOADER_MISSING, "gone")
    assert run(One, Flaky(missing, 20)).counters.retried == 20
    result = run(One, Flaky(missing, 21))
    assert result.counters.failed == 1
    assert result.failures[0].reason == "downloader_missing: gone, tried 21 times"


class Skips(FakeCenter):
    """Skips the first so many attempts."""

    def __init__(self, times: int) -> None:
        super().__init__(lambda request: "")
        self.times = times

    def answer(self, item: RequestItem, request: DownloadRequest) -> Sequence[Answer]:
        if item.attempt > self.times:
            return super().answer(item, request)
        skipped = Skipped(run=1, reason="no agent", items=[(item.id, item.attempt)])
        return [skipped, skipped, Skipped(run=1, reason="x", items=[(99, 1)])]


@pytest.mark.covers("S1.39")
async def test_a_skipped_request_is_counted_and_sent_again() -> None:
    result = await crawl(One, Skips(3))
    check_books(result)
    counters = result.counters
    assert (counters.success, counters.skipped, counters.retried) == (1, 3, 3)
    assert counters.returned == 1


@pytest.mark.covers("S1.40")
async def test_a_request_that_is_always_skipped_fails() -> None:
    result = await crawl(One, Skips(1000))
    check_books(result)
    assert result.outcome.state == "failed"
    assert "not dispatched: no agent, tried 21 times" in result.outcome.reason


def test_a_run_without_any_success_fails_with_the_first_reason() -> None:
    refused = NoAnswer(FailureKind.CONNECTION, "connection refused by 127.0.0.1:9")
    result = run(One, lambda request: refused)
    assert result.outcome.state == "failed"
    assert result.outcome.reason == (
        "no page could be fetched: connection: connection refused by 127.0.0.1:9, "
        "tried 6 times (http://h/)"
    )


def test_a_run_without_requests_has_exited() -> None:
    assert run(Spider, {}).outcome.state == "exited"
