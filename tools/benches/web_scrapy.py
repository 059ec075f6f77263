"""A peer of ``bench download --profile web``: Scrapy, as its manual advises for broad crawls.

``python -m tools.benches.web_scrapy URL REPORT``
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.exceptions import IgnoreRequest
from scrapy.resolver import CachingThreadedResolver
from twisted.internet import defer

from tools.benches import web_pages
from tools.benches.web_figures import Crawl


class LocalResolver(CachingThreadedResolver):
    """Every host is this machine, as the platform has it for names below ``localhost``."""

    def getHostByName(self, name: str, timeout: Any = ()) -> defer.Deferred[str]:
        return defer.succeed("127.0.0.1")


class WebPeer(scrapy.Spider):
    """Follows every link, as ``WebSpider`` does."""

    name = "web"
    crawl: Crawl

    async def start(self) -> AsyncIterator[Any]:
        """The first page."""
        self.crawl.begin()
        yield self._request(sys.argv[1])

    def parse(self, response: Any) -> Iterator[Any]:
        """One item a page, and all its links."""
        title, links = web_pages.parse(response.url, response.body)
        self.crawl.took(len(response.body))
        for link in links:
            yield self._request(link)
        yield {"url": response.url, "status": response.status, "title": title, "links": len(links)}

    def failed(self, failure: Any) -> None:
        """Count what has no response; what robots.txt forbids is not asked for."""
        self.crawl.failed += not failure.check(IgnoreRequest)

    def _request(self, url: str) -> scrapy.Request:
        return scrapy.Request(url, errback=self.failed)


def main() -> None:
    """Crawl and report."""
    process = CrawlerProcess(
        {
            "CONCURRENT_REQUESTS": web_pages.CONCURRENCY,
            "CONCURRENT_REQUESTS_PER_DOMAIN": web_pages.HOST_CONCURRENCY,
            "DOWNLOAD_DELAY": 1 / web_pages.REQUESTS_PER_SECOND,
            "RANDOMIZE_DOWNLOAD_DELAY": False,
            "DOWNLOAD_TIMEOUT": web_pages.TIMEOUT_SECONDS,
            "ROBOTSTXT_OBEY": True,
            "USER_AGENT": web_pages.USER_AGENT,
            "SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.DownloaderAwarePriorityQueue",
            "DNS_RESOLVER": LocalResolver,
            "COOKIES_ENABLED": False,
            "RETRY_ENABLED": False,
            "TELNETCONSOLE_ENABLED": False,
            "LOG_LEVEL": "CRITICAL",
        }
    )
    crawler = process.create_crawler(WebPeer)
    WebPeer.crawl = Crawl(Path(sys.argv[2]))
    process.crawl(crawler)
    process.start()
    WebPeer.crawl.write()


if __name__ == "__main__":
    main()
