"""Spiders whose requests ask for a browser, or for the handshake of one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, ClassVar

import scrapy
from scrapy.http import Response

_PLAYWRIGHT = "scrapy_playwright.handler.ScrapyPlaywrightDownloadHandler"
_IMPERSONATE = "scrapy_impersonate.ImpersonateDownloadHandler"


class _OfSite(scrapy.Spider):
    meta: ClassVar[dict[str, Any]]

    def __init__(self, site: str, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.site = site

    async def start(self) -> AsyncIterator[scrapy.Request]:
        yield scrapy.Request(f"{self.site}/scripted", meta=self.meta)
        # Scrapy's own way, by the handler that the companion extends.
        yield scrapy.Request(f"{self.site}/scripted?plain")

    def parse(self, response: Response) -> Iterator[dict[str, str | None]]:
        path = response.url.removeprefix(self.site)
        yield {"path": path, "text": response.css("#made::text").get()}


class Rendered(_OfSite):
    name = "rendered"
    custom_settings = {"DOWNLOAD_HANDLERS": {"http": _PLAYWRIGHT, "https": _PLAYWRIGHT}}
    meta = {"playwright": True}


class Profiled(_OfSite):
    name = "profiled"
    custom_settings = {"DOWNLOAD_HANDLERS": {"http": _IMPERSONATE, "https": _IMPERSONATE}}
    meta = {"impersonate": "chrome124"}
