"""The peer: Scrapy on the same site with the same number of open requests.

``python -m tools.benches.scrapy_peer URL CONCURRENCY`` prints one JSON object.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urldefrag

import scrapy
from scrapy.crawler import CrawlerProcess


class Peer(scrapy.Spider):
    """Follows every link, as the platform's SiteSpider does."""

    name = "peer"
    pages = 0
    first = 0.0
    last = 0.0

    async def start(self) -> Any:
        """The first page; the clock starts here, not at the import of the framework."""
        self.first = time.monotonic()
        yield scrapy.Request(sys.argv[1])

    def parse(self, response: Any) -> Iterator[Any]:
        """One item a page, and all its links."""
        self.pages += 1
        self.last = time.monotonic()
        links = response.css("a[href]::attr(href)").getall()
        title = response.css("title::text").get()
        yield {"url": response.url, "status": response.status, "title": title, "links": len(links)}
        for link in links:
            yield scrapy.Request(urldefrag(response.urljoin(link)).url)


def main() -> None:
    """Crawl and report."""
    concurrency = int(sys.argv[2])
    process = CrawlerProcess(
        {
            "CONCURRENT_REQUESTS": concurrency,
            "CONCURRENT_REQUESTS_PER_DOMAIN": concurrency,
            "DOWNLOAD_DELAY": 0,
            "ROBOTSTXT_OBEY": False,
            "COOKIES_ENABLED": False,
            "RETRY_ENABLED": False,
            "TELNETCONSOLE_ENABLED": False,
            "LOG_LEVEL": "ERROR",
        }
    )
    crawler = process.create_crawler(Peer)
    before = time.process_time()
    process.crawl(crawler)
    process.start()
    spider: Any = crawler.spider
    seconds = spider.last - spider.first
    sys.stdout.write(
        json.dumps(
            {
                "pages": spider.pages,
                "seconds": round(seconds, 3),
                "pages_per_second": round(spider.pages / seconds, 1),
                "cpu_seconds": round(time.process_time() - before, 2),
                "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
                "version": scrapy.__version__,
            }
        )
        + "\n"
    )


if __name__ == "__main__":
    main()
