"""The engine: the counters it publishes, and how it stops; in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tests.yardspider.crawls import FAST, Follow, One, check_books
from yardkit.protocol import DownloadRequest, RunCounters
from yardspider import Response, Spider, SpiderSettings
from yardspider.engine import CrawlEngine
from yardspider.errors import ReportLost
from yardspider.outputs import ItemList
from yardspider.testing import FakeCenter, PageLike, Pages, VirtualClock, crawl


def test_counters_are_published_while_the_run_goes_on() -> None:
    center = FakeCenter(
        lambda request: "<a href=a><a href=b>" if request.url == "http://h/" else ""
    )

    class Slow(Follow):
        settings = SpiderSettings(speed=0.5)

    result = asyncio.run(crawl(Slow, center))
    reports = center.reports
    assert [report.seq for report in reports] == list(range(1, len(reports) + 1))
    assert len(reports) >= 3
    assert [report.final for report in reports] == [False] * (len(reports) - 1) + [True]
    for report in reports:
        left = report.total - report.success - report.failed
        assert left == report.queued + report.in_flight
    assert reports[-1] == result.counters


def test_a_steady_run_publishes_nothing_new() -> None:
    center = FakeCenter(lambda request: None)
    asyncio.run(crawl(One, center))
    # 300 s of silence with a retry each 15 s: one report a change, not one a second.
    assert len(center.reports) <= 25


class Unconfirmed(FakeCenter):
    """Loses every second report."""

    def __init__(self, pages: Pages) -> None:
        super().__init__(pages)
        self.tries = 0
        self.seen: list[RunCounters] = []

    async def report(self, counters: RunCounters) -> None:
        self.tries += 1
        self.seen.append(counters)
        if self.tries % 2:
            raise ReportLost("try again")
        self.reports.append(counters)


async def test_failure_notes_arrive_all_in_order_and_once() -> None:
    class Broken(Spider):
        settings = FAST
        start_urls = ["http://h/fine"] + [f"http://h/{n}" for n in range(650)]

    center = Unconfirmed({"http://h/fine": ""})
    result = await crawl(Broken, center)
    check_books(result)
    notes = [note for report in center.reports for note in report.failures]
    assert [note.seq for note in notes] == list(range(1, 651))
    assert max(len(report.failures) for report in center.seen) <= 200
    assert center.reports[-1].final
    assert center.reports[-1].failed == 650


class StopsItself(Follow):
    """Calls for a stop from a page, as a signal would."""

    engine: Any = None

    def parse(self, response: Response) -> Iterator[Any]:
        yield from super().parse(response)
        if response.url.endswith("/3"):
            self.engine.stop("SIGTERM")


@pytest.mark.parametrize("answering", [True, False])
async def test_a_stopped_run_keeps_its_books(answering: bool) -> None:
    def page(request: DownloadRequest) -> PageLike:
        number = int("0" + request.url.rpartition("/")[2])
        if number > 3 and not answering:
            return None
        return f"<a href=/{number * 2 + 1}><a href=/{number * 2 + 2}>"

    spider, center = StopsItself(), FakeCenter(page)
    engine = CrawlEngine(spider, FAST, center, ItemList(), clock=VirtualClock())
    spider.engine = engine
    outcome = await engine.run()
    assert (outcome.state, outcome.reason) == ("stopped", "SIGTERM")
    assert outcome.seconds <= 2.1
    assert outcome.accounting.left > 0
    assert outcome.counters.final
    assert outcome.counters.total == (
        outcome.counters.success + outcome.counters.failed + outcome.accounting.left
    )
    assert center.closed
