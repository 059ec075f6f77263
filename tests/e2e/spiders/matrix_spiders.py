"""Spiders of the failure matrix: one and the same walk over a site, each with its own patience."""

from __future__ import annotations

from collections.abc import Iterator

from yardspider.request import Request
from yardspider.settings import SpiderSettings
from yardspider.spiders import SiteSpider


class Patient(SiteSpider):
    """Outlasts whatever comes back within two minutes."""

    settings = SpiderSettings(
        request_timeout_seconds=3.0,
        request_timeout_retries=40,
        download_retries=40,
        no_answer_seconds=120.0,
        allocate_seconds=60.0,
        statistics_seconds=0.2,
        publish_retries=120,
    )


class Quick(SiteSpider):
    """Gives up soon: two tries for a broker, three seconds for an answer."""

    settings = SpiderSettings(
        request_timeout_seconds=1.0,
        request_timeout_retries=20,
        no_answer_seconds=3.0,
        allocate_seconds=5.0,
        statistics_seconds=0.1,
        publish_retries=2,
    )


class SilentPage(SiteSpider):
    """Asks for one page that is never answered, and lets the agent wait for it."""

    settings = SpiderSettings(
        request_timeout_seconds=1.5,
        request_timeout_retries=2,
        no_answer_seconds=60.0,
        statistics_seconds=0.2,
    )

    def start(self) -> Iterator[Request]:
        yield Request(f"{self._first.url}silent.html", timeout_seconds=60.0)
        yield from super().start()
