"""Start of a crawl that makes failed requests of an earlier run again, and only these."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.exceptions import NotConfigured
from scrapy.utils.request import request_from_dict

from yardscrapy.session import current
from yardspider.saved_requests import read_saved


class SavedStartMiddleware:
    """Spider middleware that replaces what the spider starts with, in every version of Scrapy."""

    def __init__(self, crawler: Crawler, address: str) -> None:
        self._crawler = crawler
        self._address = address

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> SavedStartMiddleware:
        session = current()
        if session is None or not session.run.requests:
            raise NotConfigured("the run starts as its spider does")
        return cls(crawler, session.run.requests)

    def process_start_requests(self, start_requests: Iterable[Any], spider: Spider) -> Any:
        """Before Scrapy 2.13."""
        return self._requests(spider)

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Since Scrapy 2.13."""
        for request in self._requests(self._crawler.spider):
            yield request

    def _requests(self, spider: Spider | None) -> Iterator[Request]:
        for values in read_saved(self._address):
            yield restored(values, spider)


def restored(values: dict[str, Any], spider: Spider | None) -> Request:
    """Return a saved request; Scrapy's filter of duplicates lets it pass."""
    headers: dict[bytes, list[bytes]] = {}
    for name, value in values.get("headers", ()):
        headers.setdefault(name.encode("latin-1"), []).append(value.encode("latin-1"))
    body = b64decode(values.get("body", ""))
    return request_from_dict(
        {**values, "headers": headers, "body": body, "dont_filter": True}, spider=spider
    )
