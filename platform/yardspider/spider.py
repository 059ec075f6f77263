"""What a spider author subclasses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from yardspider.request import Outputs, Request
from yardspider.resources.api import Resources
from yardspider.response import Response
from yardspider.seeds.api import Seeds
from yardspider.seeds.task import SeedTask
from yardspider.settings import SpiderSettings


class Spider:
    """Says where to begin and what to make of each page.

    Attributes:
        name: for people; the class name unless given.
        start_urls: where ``start`` begins.
        settings: how fast and how often; the job and the command line may change them.
        arguments: what the job gave this run, by name.
        seeds: adds seeds to the run's frontier; there from ``start`` on.
        resources: leases accounts, tokens and proxies of the project's pools; likewise.
    """

    name: ClassVar[str] = ""
    start_urls: ClassVar[list[str]] = []
    settings: ClassVar[SpiderSettings] = SpiderSettings()
    seeds: Seeds
    resources: Resources

    def __init__(self, arguments: Mapping[str, Any] | None = None) -> None:
        self.arguments: dict[str, Any] = dict(arguments or {})

    def start(self) -> Outputs:
        """The first requests: yield, return a list, or do either in an ``async def``.

        An ``async def`` that yields may wait for its requests to come from elsewhere, for ever
        too: with the setting ``fed_from_outside`` the run ends when nothing has been left to do
        for ``empty_seconds``. While ``start`` waits, it must await; it is asked for more only
        while fewer than 1000 requests wait for their turn.
        """
        return self._start_requests()

    def _start_requests(self) -> Iterator[Request]:
        for url in self.start_urls:
            yield Request(url)

    def parse(self, response: Response) -> Outputs:
        """Called for each page whose request names no other callback.

        Yields ``Request`` for what to fetch next, ``dict`` for each record found, and ``Seed`` for
        what another run, or this one later, is to crawl.
        """
        return None

    def is_success(self, response: Response) -> bool:
        """Whether an answer is the page that was wanted (seed S1.51: the spider decides).

        When False, HTTP 429 and 5xx are tried again and everything else has failed.
        """
        return 200 <= response.status < 400


class SeedSpider(Spider):
    """Works on the seeds of its run's frontier until it has been empty for ``empty_seconds``.

    Requests made from a page belong to the seed of that page. When all of a seed's requests have
    ended it is finished: as a success if all of them were, else as a failed try, which the service
    repeats (seed S3.17); ``response.seed`` takes what the spider itself says of it. Items are
    written before a seed is finished, seeds found on its pages are added with its finish.
    """

    def requests(self, seed: SeedTask) -> Outputs:
        """The first requests for a seed; unless you write it, the seed's data is the URL.

        It yields what callbacks yield, in any of their forms. An exception is a failed try.
        """
        return [Request(seed.data)]
