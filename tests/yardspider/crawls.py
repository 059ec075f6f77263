"""What the tests of the engine share: two spiders, and how a crawl is run and audited."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from yardkit.protocol import RunCounters
from yardspider import Request, Response, Spider, SpiderSettings
from yardspider.testing import CrawlResult, Pages, run_spider

FAST = SpiderSettings(speed=0)


class Follow(Spider):
    """Follows every link of every page."""

    settings = FAST
    start_urls = ["http://h/"]

    def parse(self, response: Response) -> Iterator[Any]:
        for url in response.links():
            yield Request(url)
        yield {"url": response.url, "depth": response.request.depth}


class One(Spider):
    """Fetches one page."""

    settings = FAST
    start_urls = ["http://h/"]


def check_counters(counters: RunCounters) -> None:
    """Both equations of ``RunCounters``, and nothing below zero."""
    c = counters
    assert c.sent + c.retried == (
        c.returned + c.skipped + c.timed_out + c.refused + c.cancelled + c.out
    )
    assert 0 <= c.held <= c.out
    assert c.total - c.success - c.failed == c.queued + c.in_flight
    assert c.out <= c.in_flight or c.final
    assert min(c.sent, c.returned, c.timed_out, c.duplicates, c.queued, c.out) >= 0


def check_books(result: CrawlResult) -> None:
    """Every request is in exactly one place."""
    books = result.outcome.accounting
    assert books.total == books.success + books.failed + books.left
    check_counters(result.counters)
    assert (result.counters.out, result.counters.held) == (0, 0)
    if result.outcome.state == "exited":
        assert books.left == 0


def run(spider: Any, pages: Pages, **options: Any) -> CrawlResult:
    result = run_spider(spider, pages, **options)
    check_books(result)
    return result


def changed(**settings: Any) -> SpiderSettings:
    return FAST.changed(settings, origin="test")
