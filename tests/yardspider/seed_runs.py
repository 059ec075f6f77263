"""What the tests of seeds share: a spider that works on them, and how a run is made and audited."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from tests.yardspider.crawls import FAST, check_books
from yardkit.protocol import SeedState
from yardspider import Request, Response, SeedSpider
from yardspider.testing import CrawlResult, FakeCenter, crawl

HELD = ("succeeded", "failed", "retried", "ignored", "given_back", "late", "left")


class Pages(SeedSpider):
    """One item a page; links of a page belong to its seed."""

    settings = FAST

    def parse(self, response: Response) -> Iterator[Any]:
        for url in response.links():
            yield Request(url)
        yield {"url": response.url, "seed": response.seed.data if response.seed else ""}


def check_seeds(result: CrawlResult) -> None:
    """Every leased seed has left by one way."""
    check_books(result)
    counts = result.seeds.counts()
    assert counts["leased"] == sum(counts[name] for name in HELD), counts
    if result.outcome.state != "failed":
        assert result.frontier.count(SeedState.RUNNING) == 0


def run_seeds(spider: Any, pages: Any, **options: Any) -> CrawlResult:
    center = pages if isinstance(pages, FakeCenter) else FakeCenter(pages)
    result = asyncio.run(crawl(spider, center, **options))
    check_seeds(result)
    return result


def states(result: CrawlResult) -> dict[str, SeedState]:
    return {seed.data: seed.state for seed in result.frontier.seeds}


def at(center: FakeCenter, seconds: float, call: Any) -> None:
    center.clock.call_later(seconds, call)
