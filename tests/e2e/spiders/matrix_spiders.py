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


class Hurried(SiteSpider):
    """Tries a broker that is gone twice more, and waits for its agents for a few seconds."""

    settings = SpiderSettings(
        request_timeout_seconds=3.0,
        no_answer_seconds=120.0,
        allocate_seconds=4.0,
        statistics_seconds=0.2,
        publish_retries=2,
    )


class NoAnswer(SiteSpider):
    """Gives up after three seconds without any answer."""

    settings = SpiderSettings(
        request_timeout_seconds=1.0,
        request_timeout_retries=20,
        no_answer_seconds=3.0,
        statistics_seconds=0.1,
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
