"""Scrapy project of ``bench scrapy``: settings and the one spider, for both sides alike.

The settings are those of the peer of ``bench download``: as light as Scrapy can be.
"""

from __future__ import annotations

import atexit
import json
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag

import scrapy

SPIDER_MODULES = ["bench_pages"]
CONCURRENT_REQUESTS = 100
CONCURRENT_REQUESTS_PER_DOMAIN = CONCURRENT_REQUESTS
DOWNLOAD_DELAY = 0
ROBOTSTXT_OBEY = False
COOKIES_ENABLED = False
RETRY_ENABLED = False
TELNETCONSOLE_ENABLED = False
REMOTE_CONTROL_ENABLED = False
LOG_LEVEL = "INFO"


class PagesSpider(scrapy.Spider):
    """Follows every link; one item a page. At its end the process writes what it has used."""

    name = "pages"

    def __init__(self, url: str, report: str, **values: Any) -> None:
        super().__init__(**values)
        self.url = url
        self.pages = 0
        self.first = self.last = 0.0
        atexit.register(self._write, Path(report))

    async def start(self) -> AsyncIterator[scrapy.Request]:
        """The first page; the clock starts here, not at the import of the framework."""
        self.first = time.monotonic()
        yield scrapy.Request(self.url)

    def parse(self, response: Any) -> Iterator[Any]:
        """One item, and all links."""
        self.pages += 1
        self.last = time.monotonic()
        links = response.css("a[href]::attr(href)").getall()
        title = response.css("title::text").get()
        yield {"url": response.url, "status": response.status, "title": title, "links": len(links)}
        for link in links:
            yield scrapy.Request(urldefrag(response.urljoin(link)).url)

    def _write(self, report: Path) -> None:
        # Not `ru_maxrss`, which begins with the memory of the process that has started this one.
        status = Path("/proc/self/status").read_text(encoding="ascii")
        peak = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
        found = {
            "pages": self.pages,
            "seconds": round(self.last - self.first, 3),
            "cpu_seconds": round(time.process_time(), 2),
            "peak_rss_mb": round(int(peak.split()[1]) / 1024, 1),
        }
        report.write_text(json.dumps(found), encoding="utf-8")
