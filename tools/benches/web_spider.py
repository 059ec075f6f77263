"""The spider of ``bench download --profile web``, as a run of the platform."""

from __future__ import annotations

import atexit
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.benches import broker_bytes
from tools.benches.web_figures import Crawl
from tools.benches.web_pages import CONCURRENCY, parse
from yardspider import Request, Response, Spider, SpiderSettings


class WebSpider(Spider):
    """Follows every link.

    Arguments:
        url: First page.
        report: File for the figures of the crawl.
        traffic: File for the sizes of published messages.
    """

    name = "web"
    arguments = {"url": str, "report": str, "traffic": str}
    settings = SpiderSettings(
        concurrency=CONCURRENCY,
        speed=0,
        download_retries=0,
        request_timeout_seconds=60,
        # Requests to dead hosts are held while their robots.txt is tried again.
        held_limit=10_000,
    )

    def __init__(self, arguments: dict[str, Any] | None = None) -> None:
        super().__init__(arguments)
        broker_bytes.count(Path(self.arguments["traffic"]))
        self._crawl = Crawl(Path(self.arguments["report"]))
        self._known = {self.arguments["url"]}
        atexit.register(self._crawl.write)

    def start(self) -> Iterator[Request]:
        self._crawl.begin()
        yield Request(self.arguments["url"])

    def parse(self, response: Response) -> Iterator[Request | dict[str, Any]]:
        title, links = parse(response.url, response.body)
        self._crawl.took(response.size)
        for link in links:
            if link not in self._known:
                self._known.add(link)
                yield Request(link)
        yield {"url": response.url, "status": response.status, "title": title, "links": len(links)}
