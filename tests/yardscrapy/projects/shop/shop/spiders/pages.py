"""Spiders over the site of the tests; the argument ``site`` is its address."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import scrapy
from scrapy.http import Response


class Pages(scrapy.Spider):
    """Follows every link; yields one item a page."""

    name = "pages"

    def __init__(self, *, site: str, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.start_urls = [site + "/"]

    def parse(self, response: Response) -> Iterator[Any]:
        yield {
            "url": response.url,
            "title": response.css("title::text").get(),
            "agent": response.meta.get("crawlyard_agent"),
            "latency": response.meta["download_latency"],
            "ip": str(response.ip_address),
            "protocol": response.protocol,
            "flags": list(response.flags),
        }
        yield from response.follow_all(css="a")


class Each(scrapy.Spider):
    """Fetches the paths of the argument ``paths`` and yields what became of each."""

    name = "each"

    def __init__(self, *, site: str, paths: str, meta: str = "{}", **arguments: Any) -> None:
        super().__init__(**arguments)
        self.site = site
        self.start_urls = [path if "://" in path else site + path for path in paths.split()]
        self.request_meta = json.loads(meta)

    def start_requests(self) -> Iterator[scrapy.Request]:
        for url in self.start_urls:
            yield scrapy.Request(
                url, errback=self.failed, dont_filter=True, meta=dict(self.request_meta)
            )

    async def start(self) -> Any:
        for request in self.start_requests():
            yield request

    def parse(self, response: Response) -> Iterator[Any]:
        yield {
            "url": response.url,
            "status": response.status,
            "type": type(response).__name__,
            "headers": sorted(
                [name.decode("latin-1"), [value.decode("latin-1") for value in values]]
                for name, values in response.headers.items()
            ),
            "length": len(response.body),
            "flags": list(response.flags),
        }

    def failed(self, failure: Any) -> Iterator[Any]:
        kind = type(failure.value)
        yield {
            "url": failure.request.url,
            "error": f"{kind.__module__}.{kind.__qualname__}",
            "text": str(failure.value),
        }
