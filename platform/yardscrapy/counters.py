"""Outcome of each request of a crawl.

A request is one pass of Scrapy's downloader with what follows from it. It ends in exactly one way:

- *replaced*: a middleware returned another request (retry, redirect), or ignored it;
- *failed*: no response, a status that no callback accepts, or an exception in the callback;
- *succeeded*: its callback has ended and each of its items is confirmed, dropped or in error.

Everything here runs in the thread of the crawl.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

from itemadapter import is_item
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Request, Response
from scrapy.utils.misc import load_object
from twisted.python.failure import Failure

from yardscrapy.request_rows import MIDDLEWARE, PARENT, EndedRequest, failure_kind, number_of
from yardspider.request_log import CALLBACK, HTTP

if TYPE_CHECKING:
    from scrapy.core.downloader import Downloader
    from scrapy.crawler import Crawler

T = TypeVar("T")

# Text of the exception of requests that robots.txt forbids: these failed, other ignored ones
# (offsite, filtered by the project) did not.
_FORBIDDEN = "Forbidden"


class RequestEvents(Protocol):
    """What is notified of requests."""

    def started(self) -> None: ...

    def replaced(self) -> None: ...

    def failed(self, ended: EndedRequest) -> None: ...

    def succeeded(self, ended: EndedRequest) -> None:
        """Note a request whose items were all handed over before this call."""


class Page:
    """A response on its way through spider and pipelines.

    in_spider: it has reached the spider's middlewares. accepted: it has reached the callback.
    items: yielded by the callback and not settled, of ``yielded``. exhausted: the callback has
    ended. error: exception of the callback.
    """

    __slots__ = (
        "accepted",
        "error",
        "exhausted",
        "in_spider",
        "items",
        "number",
        "request",
        "status",
        "url",
        "yielded",
    )

    def __init__(self, request: Request, response: Response) -> None:
        self.request = request
        self.number = number_of(request)
        self.url: str = response.url
        self.status: int = response.status
        self.in_spider = False
        self.accepted = False
        self.exhausted = False
        self.items = 0
        self.yielded = 0
        self.error: BaseException | None = None

    def ended(
        self, reason: str = "", kind: str = "", error: BaseException | None = None
    ) -> EndedRequest:
        """Return how its request has ended."""
        return EndedRequest(self.request, self.url, self.status, reason, kind, error, self.yielded)


class RequestTracker:
    """Follows the requests of one crawl; notifies ``events`` of each outcome once."""

    def __init__(self, events: RequestEvents) -> None:
        self._events = events
        self._pages: WeakKeyDictionary[Response, Page] = WeakKeyDictionary()
        # Responses that have not reached the spider's middlewares. True: seen by a ``sweep``.
        self._arrived: dict[Page, bool] = {}

    # --- downloader -----------------------------------------------------------------------------

    def fetch_started(self) -> None:
        self._events.started()

    def fetch_ended(self, result: Any, request: Request) -> None:
        """Note what a pass of the downloader has ended in."""
        if isinstance(result, Response):
            page = Page(request, result)
            self._pages[result] = page
            self._arrived[page] = False
        elif isinstance(result, Failure):
            error = result.value
            is_ignored = isinstance(error, IgnoreRequest)
            robots = is_ignored and str(error).startswith(_FORBIDDEN)
            if is_ignored and not robots:
                self._events.replaced()
                return
            kind = failure_kind(request, robots=robots)
            own = error if kind == MIDDLEWARE else None
            self._events.failed(EndedRequest(request, request.url, 0, describe(error), kind, own))
        else:
            self._events.replaced()

    def sweep(self, in_scraper: Callable[[Request], bool], *, at_end: bool = False) -> None:
        """Settle responses that went to no spider: those of media pipelines, inline downloads.

        Args:
            in_scraper: whether the spider's middlewares will get the response of a request.
            at_end: the crawl has ended.
        """
        for page, was_seen in list(self._arrived.items()):
            if at_end or (was_seen and not in_scraper(page.request)):
                del self._arrived[page]
                if page.status < 400:
                    self._events.succeeded(page.ended())
                else:
                    self._events.failed(page.ended(f"HTTP {page.status}", HTTP))
            else:
                self._arrived[page] = True

    # --- spider ---------------------------------------------------------------------------------

    def spider_input(self, response: Response) -> None:
        page = self._pages.get(response)
        if page is not None:
            page.in_spider = True
            self._arrived.pop(page, None)

    def accepted(self, response: Response) -> None:
        page = self._pages.get(response)
        if page is not None:
            page.accepted = True

    def page(self, response: Response) -> Page | None:
        """Return the page of a response; None for one that the downloader has not seen."""
        return self._pages.get(response)

    def yielded(self, page: Page, found: Any) -> None:
        """Note what a callback has yielded."""
        if isinstance(found, Request):
            found.meta[PARENT] = page.number
        elif is_item(found):
            page.items += 1
            page.yielded += 1

    def spider_ended(self, page: Page | None) -> None:
        """Note that a callback has yielded all of its output."""
        if page is not None and not page.exhausted:
            page.exhausted = True
            self._settle(page)

    def spider_failed(self, page: Page | None, error: BaseException) -> None:
        """Note an exception of a callback, or one that no spider middleware has handled."""
        if page is not None:
            page.error = page.error or error
            self.spider_ended(page)

    # --- items ----------------------------------------------------------------------------------

    def item_settled(self, response: object) -> None:
        """Note that an item of ``response`` was handed over, dropped or in error."""
        page = self._pages.get(response) if isinstance(response, Response) else None
        if page is not None:
            page.items -= 1
            self._settle(page)

    def _settle(self, page: Page) -> None:
        if not page.exhausted or page.items:
            return
        if page.error is not None:
            self._events.failed(page.ended(describe(page.error), CALLBACK, page.error))
        elif not page.accepted and not 200 <= page.status < 300:
            # Ignored by HttpErrorMiddleware.
            self._events.failed(page.ended(f"HTTP {page.status}", HTTP))
        else:
            self._events.succeeded(page.ended())


def describe(error: BaseException | None) -> str:
    """Return ``<class>: <message>``."""
    return f"{type(error).__name__}: {error}".removesuffix(": ")


_trackers: WeakKeyDictionary[Crawler, RequestTracker] = WeakKeyDictionary()


def set_tracker(crawler: Crawler, tracker: RequestTracker) -> None:
    """Let the components of a crawl report to ``tracker``."""
    _trackers[crawler] = tracker


def counting_downloader(name: str | type[Downloader]) -> type[Downloader]:
    """Return the project's downloader class, which reports each pass to the crawl's tracker."""
    base: Any = load_object(name)

    class CountingDownloader(base):  # type: ignore[misc]
        def __init__(self, crawler: Crawler) -> None:
            super().__init__(crawler)
            self._tracker = _trackers[crawler]

        # Scrapy looks at the signature to see whether ``spider`` is needed.
        def fetch(self, request: Request, spider: Any = None) -> Any:
            self._tracker.fetch_started()
            passed = (request,) if spider is None else (request, spider)
            return super().fetch(*passed).addBoth(self._fetch_ended, request)

        def _fetch_ended(self, result: Any, request: Request) -> Any:
            self._tracker.fetch_ended(result, request)
            return result

    return CountingDownloader


class OuterSpiderMiddleware:
    """Next to the engine: sees each response first and its output last."""

    def __init__(self, tracker: RequestTracker) -> None:
        self._tracker = tracker

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> OuterSpiderMiddleware:
        return cls(_trackers[crawler])

    def process_spider_input(self, response: Response, spider: Any = None) -> None:
        self._tracker.spider_input(response)

    # One generator for all that a callback yields: each level costs as much as parsing a link.
    # Their last lines are not reached when the crawl closes a generator early: then the request
    # is unfinished.

    def process_spider_output(
        self, response: Response, result: Iterable[T], spider: Any = None
    ) -> Iterator[T]:
        page = self._tracker.page(response)
        try:
            for found in result:
                if page is not None:
                    self._tracker.yielded(page, found)
                yield found
        except Exception as error:
            self._tracker.spider_failed(page, error)
            raise
        self._tracker.spider_ended(page)

    async def process_spider_output_async(
        self, response: Response, result: AsyncIterator[T], spider: Any = None
    ) -> AsyncIterator[T]:
        page = self._tracker.page(response)
        try:
            async for found in result:
                if page is not None:
                    self._tracker.yielded(page, found)
                yield found
        except Exception as error:
            self._tracker.spider_failed(page, error)
            raise
        self._tracker.spider_ended(page)

    def process_spider_exception(
        self, response: Response, exception: Exception, spider: Any = None
    ) -> None:
        self._tracker.spider_failed(self._tracker.page(response), exception)


class InnerSpiderMiddleware:
    """Next to the spider: sees the responses that no middleware has rejected."""

    def __init__(self, tracker: RequestTracker) -> None:
        self._tracker = tracker

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> InnerSpiderMiddleware:
        return cls(_trackers[crawler])

    def process_spider_input(self, response: Response, spider: Any = None) -> None:
        self._tracker.accepted(response)
