"""Spider that downloads past Scrapy."""

from __future__ import annotations

from typing import Any
from urllib.request import urlopen

import scrapy
from scrapy.http import Response


class Direct(scrapy.Spider):
    """Fetches one page by Scrapy, and the address ``past`` in its callback by itself."""

    name = "direct"

    def __init__(self, *, site: str, past: str, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.start_urls = [site + "/"]
        self.past = past

    def parse(self, response: Response) -> Any:
        with urlopen(self.past, timeout=5) as answer:  # noqa: S310
            yield {"url": self.past, "length": len(answer.read())}
