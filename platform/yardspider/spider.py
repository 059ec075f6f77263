"""Base classes of spiders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from yardspider.files import Files
from yardspider.request import Outputs, Request
from yardspider.resources.api import Resources
from yardspider.response import Response
from yardspider.seeds.api import Seeds
from yardspider.seeds.task import SeedTask
from yardspider.settings import SpiderSettings


class Spider:
    """Defines the first requests and what to extract from each page.

    Attributes:
        name: for people; the class name unless given.
        start_urls: URLs of ``start``.
        settings: speed and limits; the job and the command line may change them.
        item_type: class of the items: a dataclass, ``TypedDict`` or ``msgspec.Struct``. Items that
            do not fit are dropped, with the reason.
        arguments: of the job, by name. A class attribute declares them: the default by name, or
            the type of an argument that is required. ``yardspider describe`` and the job's form
            show them; texts of a section "Arguments:" of the class's docstring are their help.
        seeds: adds seeds to the run's frontier; available from ``start`` on.
        resources: leases accounts, tokens and proxies of the project's pools; likewise.
        files: keeps files, such as images, beside the items; likewise.
    """

    name: ClassVar[str] = ""
    start_urls: ClassVar[list[str]] = []
    settings: ClassVar[SpiderSettings] = SpiderSettings()
    item_type: ClassVar[Any] = None
    arguments: dict[str, Any] = {}
    seeds: Seeds
    resources: Resources
    files: Files

    def __init__(self, arguments: Mapping[str, Any] | None = None) -> None:
        declared = type(self).arguments.items()
        defaults = {name: value for name, value in declared if not isinstance(value, type)}
        self.arguments = {**defaults, **(arguments or {})}

    def start(self) -> Outputs:
        """Yield or return the first requests, also from an ``async def``.

        An ``async def`` that yields may wait for its requests to come from elsewhere: with
        the setting ``fed_from_outside`` the run ends when it has been empty for
        ``empty_seconds``. While ``start`` waits, it must await; it is iterated only while
        fewer than 1000 requests are queued.
        """
        return self._start_requests()

    def _start_requests(self) -> Iterator[Request]:
        for url in self.start_urls:
            yield Request(url)

    def parse(self, response: Response) -> Outputs:
        """Handle each page whose request names no other callback.

        Yields ``Request`` for what to fetch next, ``dict`` for each record, and ``Seed`` for what
        another run, or this one later, is to crawl.
        """
        return None

    def is_success(self, response: Response) -> bool:
        """Return whether a response is the wanted page.

        If False, HTTP 429 and 5xx are retried and everything else has failed.
        """
        return 200 <= response.status < 400


class SeedSpider(Spider):
    """Works on the seeds of its run's frontier until it has been empty for ``empty_seconds``.

    Requests made from a page belong to the seed of that page. When all of a seed's requests have
    ended, it is finished: as a success if all succeeded, else as a failed try, which the service
    repeats; ``response.seed`` accepts an explicit result. Items are written before a
    seed is finished; seeds found on its pages are added with the finish.
    """

    def requests(self, seed: SeedTask) -> Outputs:
        """Yield the first requests for a seed; by default its data is the URL.

        Takes the forms of callbacks. An exception is a failed try.
        """
        return [Request(seed.data)]
