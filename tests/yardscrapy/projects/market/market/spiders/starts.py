"""Two ways to begin: until Scrapy 2.15, and since 2.13."""

import scrapy


class Old(scrapy.Spider):
    name = "old"

    def start_requests(self):
        for number in range(3):
            yield scrapy.Request(f"{self.site}/{number}", cb_kwargs={"number": number})

    def parse(self, response, number):
        yield {"url": response.url, "number": number}


class New(scrapy.Spider):
    name = "new"

    async def start(self):
        yield {"url": "", "number": -1}
        for number in range(3):
            yield scrapy.Request(f"{self.site}/{number}", cb_kwargs={"number": number})

    async def parse(self, response, number):
        yield {"url": response.url, "number": number}
