"""Spiders that ask for special downloads; the argument ``site`` is the address of the site."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import scrapy
from scrapy import signals
from scrapy.exceptions import StopDownload
from scrapy.http import Response


class OfSite(scrapy.Spider):
    """Base: its first requests, in the forms of old and new versions."""

    def __init__(self, *, site: str, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.site = site

    def first(self) -> Iterator[scrapy.Request]:
        raise NotImplementedError

    def start_requests(self) -> Iterator[scrapy.Request]:
        return self.first()

    async def start(self) -> Any:
        for request in self.first():
            yield request


class Posts(OfSite):
    """Sends one form with a header twice."""

    name = "posts"

    def first(self) -> Iterator[scrapy.Request]:
        headers = {
            "X-Twice": ["1", "2"],
            "X-Latin": b"caf\xe9",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        yield scrapy.Request(f"{self.site}/headers", method="POST", body="a=b", headers=headers)

    def parse(self, response: Response) -> Any:
        yield response.json()


class Stopped(OfSite):
    """Stops one download at its headers, and one at the first part of its body."""

    name = "stopped"

    def first(self) -> Iterator[scrapy.Request]:
        crawler = self.crawler
        crawler.signals.connect(self.on_headers, signals.headers_received)
        crawler.signals.connect(self.on_bytes, signals.bytes_received)
        for path in ("ok", "large"):
            yield scrapy.Request(f"{self.site}/{path}", errback=self.failed)

    def on_headers(self, headers: Any, body_length: Any, request: scrapy.Request) -> None:
        if request.url.endswith("/ok"):
            raise StopDownload(fail=bool(int(self.fail)))

    def on_bytes(self, data: bytes, request: scrapy.Request) -> None:
        raise StopDownload(fail=bool(int(self.fail)))

    def parse(self, response: Response) -> Any:
        yield self.item(response, failed=False)

    def failed(self, failure: Any) -> Any:
        yield self.item(failure.value.response, failed=True)

    def item(self, response: Response, *, failed: bool) -> dict[str, Any]:
        length = len(response.body)
        return {
            "url": response.url,
            "length": length,
            "flags": list(response.flags),
            "failed": failed,
        }


class Chains(OfSite):
    """Six chains of four pages each."""

    name = "chains"

    def first(self) -> Iterator[scrapy.Request]:
        for chain in "abcdef":
            yield scrapy.Request(f"{self.site}/ok?{chain}0", meta={"chain": chain})

    def parse(self, response: Response) -> Any:
        agent = response.meta["crawlyard_agent"]
        chain = response.url.rpartition("?")[2]
        yield {"chain": chain[0], "agent": agent, "flags": list(response.flags)}
        number = int(chain[1]) + 1
        if number < 4:
            yield scrapy.Request(f"{self.site}/ok?{chain[0]}{number}")
