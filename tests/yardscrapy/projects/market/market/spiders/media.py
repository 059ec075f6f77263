"""Files that a pipeline of Scrapy downloads."""

import scrapy


class Media(scrapy.Spider):
    name = "media"
    custom_settings = {"ITEM_PIPELINES": {"scrapy.pipelines.files.FilesPipeline": 1}}

    def __init__(self, site, **kwargs):
        super().__init__(**kwargs)
        self.site = site
        self.start_urls = [f"{site}/1"]

    def parse(self, response):
        yield {"file_urls": [f"{self.site}/photo.png", f"{self.site}/gone.png"]}


class Slow(scrapy.Spider):
    name = "slow"
    custom_settings = {"CONCURRENT_REQUESTS_PER_DOMAIN": 2}

    def __init__(self, site, pages="300", **kwargs):
        super().__init__(**kwargs)
        self.start_urls = [f"{site}/slow/{number}" for number in range(int(pages))]

    def parse(self, response):
        yield {"url": response.url}
