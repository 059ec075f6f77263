"""Rules, sitemaps, items of several kinds."""

import dataclasses
from datetime import date
from decimal import Decimal

from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule, SitemapSpider


@dataclasses.dataclass
class Price:
    url: str
    amount: Decimal
    day: date


class Walk(CrawlSpider):
    name = "walk"
    rules = [Rule(LinkExtractor(allow=r"/\d+$"), callback="parse_page", follow=True)]

    def __init__(self, site, **kwargs):
        super().__init__(**kwargs)
        self.start_urls = [f"{site}/1"]

    def parse_page(self, response):
        return Price(response.url, Decimal("1.50"), date(2026, 3, 1))


class Map(SitemapSpider):
    name = "map"

    def __init__(self, site, **kwargs):
        super().__init__(**kwargs)
        self.sitemap_urls = [f"{site}/robots.txt"]

    def parse(self, response):
        yield {"url": response.url, "depth": response.meta["depth"]}
