"""Scrapy project of the failure tests: settings, and one spider that walks over a site."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urldefrag

import scrapy
from scrapy.http import Response

SPIDER_MODULES = ["scrapy_pages"]
CONCURRENT_REQUESTS_PER_DOMAIN = 10
# An answer may take this time by 1.25 and 15 seconds; then the request is sent again.
DOWNLOAD_TIMEOUT = 2
RETRY_TIMES = 20


class PagesSpider(scrapy.Spider):
    """Follows every link of the site; one item a page."""

    name = "pages"

    def __init__(self, url: str, **values: Any) -> None:
        super().__init__(**values)
        self.start_urls = [url]

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url}
        for link in response.css("a::attr(href)").getall():
            url = urldefrag(response.urljoin(link)).url
            if url.startswith("http"):
                yield scrapy.Request(url)
