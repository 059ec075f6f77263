"""Books of a library that does not exist, by its pages over TLS and by its interface."""

import json
from datetime import datetime

import scrapy


class Shelves(scrapy.Spider):
    name = "shelves"
    start_urls = ["https://library.example:8443/", "https://library.example:8443/private"]

    def parse(self, response):
        for book in response.css("li.book"):
            yield {
                "title": book.css("b::text").get(),
                "borrowed": datetime.fromisoformat(book.css("time::text").get()),
            }
        yield from response.follow_all(css="a.next")
        for book in response.css("a.book"):
            yield response.follow(book, self.parse_book, errback=self.missing)

    def parse_book(self, response):
        yield {"book": json.loads(response.text)["name"], "url": response.url}

    def missing(self, failure):
        yield {"missing": failure.request.url}
