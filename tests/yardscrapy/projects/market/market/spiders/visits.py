"""Cookies, forms, redirects, retries, errbacks, as in any project since Scrapy 1."""

import scrapy
from scrapy.http import FormRequest


class Thing(scrapy.Item):
    url = scrapy.Field()
    text = scrapy.Field(serializer=str.upper)
    times = scrapy.Field()


class Visits(scrapy.Spider):
    name = "visits"
    # Read by the platform as little as by Scrapy.
    custom_settings = {"COOKIES_ENABLED": True, "LOG_LEVEL": "DEBUG"}

    def __init__(self, site, _job="", level=1, **kwargs):
        super().__init__(**kwargs)
        self.site = site
        self.level = level
        self._job = _job
        self.start_urls = [f"{site}/login"]

    def parse(self, response):
        yield FormRequest.from_response(
            response, formdata={"user": "ann"}, callback=self.account, meta={"cookiejar": "a"}
        )
        yield scrapy.Request(f"{self.site}/account?b", self.account, meta={"cookiejar": "b"})
        yield scrapy.Request(f"{self.site}/redirect", self.page)
        yield scrapy.Request(f"{self.site}/flaky", self.page)
        yield scrapy.Request(f"{self.site}/gone", self.page)
        yield scrapy.Request(
            f"{self.site}/gone?handled", self.page, meta={"handle_httpstatus_list": [404]}
        )
        yield scrapy.Request(f"{self.site}/gone?errback", self.page, errback=self.failed)
        yield scrapy.Request("http://127.0.0.1:9/closed", self.page, errback=self.failed)
        yield scrapy.Request(f"{self.site}/broken", self.broken)
        yield {"drop": True}
        yield {"fail": True}

    def account(self, response):
        yield Thing(url=response.url, text=response.text, times=response.meta.get("cookiejar"))

    def page(self, response):
        yield Thing(
            url=response.url,
            text=f"{response.status} {response.text}",
            times=response.meta.get("redirect_times", 0),
        )

    def failed(self, failure):
        yield {"url": failure.request.url, "failed": True}

    def broken(self, response):
        yield {"url": response.url, "before": True}
        raise ValueError("a bug of the spider")
