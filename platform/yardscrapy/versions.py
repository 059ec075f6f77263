"""Differences between the supported versions of Scrapy, each asked for once."""

from __future__ import annotations

import inspect
from typing import Any, Final

import scrapy
from scrapy.crawler import Crawler

_version: Final = scrapy.version_info[:2]
VERSION: Final = (int(_version[0]), int(_version[1]))

# Since 2.14 `async download_request(request)`; before, `download_request(request, spider)` returns
# a Deferred.
HANDLERS_ARE_COROUTINES: Final = VERSION >= (2, 14)


def build(component: type, crawler: Crawler) -> Any:
    """Return a component made from a crawler, as Scrapy makes its own."""
    if hasattr(component, "from_crawler"):
        return component.from_crawler(crawler)
    if hasattr(component, "from_settings"):
        return component.from_settings(crawler.settings)
    return component()


def is_coroutine_handler(handler: Any) -> bool:
    """Return whether a download handler has the interface of 2.14."""
    return inspect.iscoroutinefunction(handler.download_request)
