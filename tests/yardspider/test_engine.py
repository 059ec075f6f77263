"""The engine: a crawl from start to end, its speed and its window, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from typing import Any

import pytest

from tests.yardspider.crawls import FAST, Follow, changed, check_books, run
from yardkit.protocol import DownloadRequest, RequestItem
from yardspider import Request, Response, Spider, SpiderSettings
from yardspider.testing import FakeCenter, Page, PageLike, crawl, page_answer
from yardspider.transports.base import Answer


# --- the plain way ----------------------------------------------------------------------------
def test_a_crawl_ends_when_nothing_is_left() -> None:
    pages = {"http://h/": "<a href=a>", "http://h/a": "<a href=/><a href=b>", "http://h/b": ""}
    result = run(Follow, pages)
    assert result.outcome.state == "exited"
    assert [(i["url"], i["depth"]) for i in result.items] == [
        ("http://h/", 0),
        ("http://h/a", 1),
        ("http://h/b", 2),
    ]
    counters = result.counters
    assert (counters.total, counters.success, counters.pages, counters.items) == (3, 3, 3, 3)
    assert (counters.sent, counters.returned, counters.retried) == (3, 3, 0)
    assert counters.agents == {"fake": 3}
    assert counters.final


def test_html_or_what_names_no_type_with_200_is_a_page() -> None:
    pages: dict[str, PageLike] = {
        "http://h/": "".join(f"<a href={n}>" for n in "abcd"),
        "http://h/a": Page(headers={"content-type": "image/png"}, body=b"x"),
        "http://h/b": Page(status=203),
        "http://h/c": Page(headers={}),
        "http://h/d": Page(headers={"content-type": "application/xhtml+xml"}),
    }
    assert run(Follow, pages).counters.pages == 3


class Forms(Spider):
    """Every form a callback may have."""

    settings = FAST

    def start(self) -> list[Request]:
        names = ["nothing", "one", "listed", "awaited", "later", "stream", "parse"]
        return [
            Request("http://h/" + name, name if name != "parse" else None) for name in names
        ] + [Request("http://h/direct", lambda response: {"by": "direct"})]

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"by": "parse"}

    def nothing(self, response: Response) -> None:
        pass

    def one(self, response: Response) -> dict[str, str]:
        return {"by": "one"}

    def listed(self, response: Response) -> list[Any]:
        return [{"by": "listed"}, {"by": "listed"}]

    async def awaited(self, response: Response) -> dict[str, str]:
        await asyncio.sleep(0.01)
        return {"by": "awaited"}

    async def later(self, response: Response) -> list[Any]:
        return [{"by": "later"}, Request("http://h/more")]

    async def stream(self, response: Response) -> AsyncIterator[Any]:
        yield {"by": "stream"}
        await asyncio.sleep(0)
        yield {"by": "stream"}


def test_callbacks_of_every_form() -> None:
    result = run(Forms, lambda request: "")
    assert result.outcome.state == "exited", result.outcome.reason
    expected = ["awaited", "direct", "later", "listed", "listed", "one", "parse", "parse"]
    assert sorted(i["by"] for i in result.items) == [*expected, "stream", "stream"]
    assert result.counters.success == 9


class SlowStart(Spider):
    """An asynchronous start with a pause longer than anything else."""

    settings = FAST

    async def start(self) -> AsyncIterator[Request]:
        yield Request("http://h/1")
        await asyncio.sleep(0.05)
        yield Request("http://h/2")


def test_an_asynchronous_start_is_waited_for() -> None:
    assert run(SlowStart, lambda request: "").counters.total == 2


class Endless(Spider):
    """A start that is fed from outside and never ends."""

    settings = changed(fed_from_outside=True)

    async def start(self) -> AsyncIterator[Request]:
        yield Request("http://h/1")
        await asyncio.Event().wait()


@pytest.mark.covers("S1.50")
@pytest.mark.parametrize(("options", "seconds"), [({}, 30), ({"empty_seconds": 7}, 7)])
def test_a_run_fed_from_outside_ends_when_empty_for_long(
    options: dict[str, Any], seconds: float
) -> None:
    class Fed(Endless):
        settings = changed(fed_from_outside=True, **options)

    result = run(Fed, lambda request: "")
    assert result.outcome.state == "exited"
    assert seconds <= result.outcome.seconds < seconds + 0.5


@pytest.mark.covers("S1.50")
@pytest.mark.parametrize(
    ("empty_seconds", "fetched", "ended"),
    # Pauses of 25 s and 28 s are shorter than 30 s and longer than 10 s; 0 waits for the end.
    [(None, 3, 88), (10, 1, 15), (0, 3, 100)],
)
async def test_what_comes_from_outside_in_time_is_fetched(
    empty_seconds: float | None, fetched: int, ended: float
) -> None:
    center = FakeCenter(lambda request: "")
    arrived: asyncio.Queue[str | None] = asyncio.Queue()
    times = {5: "http://h/1", 30: "http://h/2", 58: "http://h/3", 100: None}
    for seconds, url in times.items():
        center.clock.call_later(seconds, partial(arrived.put_nowait, url))

    class Fed(Spider):
        settings = changed(fed_from_outside=True, empty_seconds=empty_seconds)

        async def start(self) -> AsyncIterator[Request]:
            while (url := await arrived.get()) is not None:
                yield Request(url)

    result = await crawl(Fed, center)
    check_books(result)
    assert (result.outcome.state, result.counters.success) == ("exited", fetched)
    assert ended <= result.outcome.seconds < ended + 0.5


@pytest.mark.covers("S1.50")
async def test_any_other_run_waits_for_its_start_and_ends_with_it() -> None:
    center = FakeCenter(lambda request: "")
    opened = asyncio.Event()
    center.clock.call_later(500, opened.set)

    class Patient(Spider):
        settings = FAST

        async def start(self) -> AsyncIterator[Request]:
            yield Request("http://h/1")
            await opened.wait()
            yield Request("http://h/2")

    result = await crawl(Patient, center)
    check_books(result)
    assert result.counters.success == 2
    assert 500 <= result.outcome.seconds < 500.5


class Many(Spider):
    settings = changed(concurrency=3)

    def start(self) -> Iterator[Request]:
        for number in range(5000):
            self.arguments["made"] = number
            yield Request(f"http://h/{number}")


@pytest.mark.slow("1 s")
def test_start_is_asked_only_for_what_can_be_sent_soon() -> None:
    spider = Many({"made": 0})
    most = 0

    def answer(request: DownloadRequest) -> str:
        nonlocal most
        most = max(most, spider.arguments["made"] - int(request.url.rpartition("/")[2]))
        return ""

    result = run(spider, answer)
    assert result.counters.success == 5000
    assert most <= 1000 + 3


def test_arguments_and_meta_reach_the_callback() -> None:
    class Meta(Spider):
        settings = FAST

        def start(self) -> Iterator[Request]:
            yield Request(self.arguments["url"], meta={"n": 1}, priority=2)

        def parse(self, response: Response) -> Iterator[Any]:
            yield {"n": response.meta["n"], "agent": response.agent}

    result = run(Meta, {"http://h/x": ""}, arguments={"url": "http://h/x"})
    assert result.items == [{"n": 1, "agent": "fake"}]


# --- speed and window -------------------------------------------------------------------------
@pytest.mark.covers("S1.50")
@pytest.mark.parametrize(("speed", "seconds"), [(1.0, 19), (0.5, 38), (10.0, 1.9)])
def test_speed_is_requests_a_second(speed: float, seconds: float) -> None:
    class Steady(Spider):
        settings = SpiderSettings(speed=speed)
        start_urls = [f"http://h/{n}" for n in range(20)]

    took = run(Steady, lambda request: "").outcome.seconds
    assert seconds * 0.95 - 0.1 <= took <= seconds * 1.1 + 0.1


@pytest.mark.covers("S1.50")
def test_the_defaults_are_the_documented_ones() -> None:
    settings = SpiderSettings()
    assert (settings.concurrency, settings.speed) == (100, 1.0)
    assert (settings.request_timeout_seconds, settings.request_timeout_retries) == (15.0, 20)
    assert (settings.download_retries, settings.no_answer_seconds) == (5, 300.0)
    assert (settings.fed_from_outside, settings.patience_seconds) == (False, 0.0)
    assert settings.changed({"fed_from_outside": "true"}, origin="job").patience_seconds == 30.0


class Held(FakeCenter):
    """Answers nothing until so many requests are out, then all of them."""

    def __init__(self, hold: int) -> None:
        super().__init__(lambda request: "")
        self.hold = hold
        self.held: list[Answer] = []
        self.most = 0

    def answer(self, item: RequestItem, request: DownloadRequest) -> Sequence[Answer]:
        self.held.append(page_answer(item, request, ""))
        self.most = max(self.most, len(self.held))
        if len(self.held) < self.hold:
            return []
        answers, self.held = self.held, []
        return answers


@pytest.mark.covers("S1.44")
async def test_no_more_than_the_window_is_out() -> None:
    class Wide(Spider):
        settings = changed(concurrency=7)
        start_urls = [f"http://h/{n}" for n in range(70)]

    center = Held(7)
    result = await crawl(Wide, center)
    check_books(result)
    assert center.most == 7
    assert result.counters.success == 70
    # All seven places were used at once; the eighth request never was.
    assert result.counters.retried == 0
