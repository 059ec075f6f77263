"""Download handlers that the add-on puts in the place of the project's."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast
from urllib.parse import urldefrag, urlsplit

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.exceptions import NotConfigured
from scrapy.http import Response
from scrapy.utils.defer import maybe_deferred_to_future
from scrapy.utils.misc import load_object
from twisted.internet.defer import Deferred

from yardkit.protocol import MAX_CONTENT_BYTES, DownloaderType, DownloadRequest, HeaderPairs
from yardscrapy import options, versions
from yardscrapy.client import ClientResult
from yardscrapy.failures import DownloadRefused, unsupported_scheme
from yardscrapy.hop import Hop
from yardscrapy.proxies import PROXY_AUTHORIZATION, ProxyPolicy
from yardscrapy.responses import AGENT, ResponseMaker
from yardscrapy.session import Session, current

log = logging.getLogger("yardscrapy")

_PROXY_AUTHORIZATION: Final = PROXY_AUTHORIZATION.lower()
# Scrapy's own handlers are never needed for what the agents do.
_SCRAPYS_OWN: Final = "scrapy."


class _DirectDownloads:
    """Handlers of the project for requests that go past the agents; each is counted."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._paths = dict(crawler.settings.getdict(options.REPLACED_HANDLERS))
        self._handlers: dict[str, Any] = {}

    def is_foreign(self, scheme: str) -> bool:
        """Return whether the project replaces Scrapy's own handler."""
        path = self._paths.get(scheme, _SCRAPYS_OWN)
        module = path if isinstance(path, str) else str(getattr(path, "__module__", ""))
        return not module.startswith(_SCRAPYS_OWN)

    def handler(self, scheme: str) -> Any:
        """Return the project's handler of a scheme, made by the first call."""
        if scheme not in self._handlers:
            component = load_object(self._paths[scheme])
            self._handlers[scheme] = versions.build(component, self._crawler)
        return self._handlers[scheme]

    def count(self, name: str) -> None:
        """Count a request that goes past the agents."""
        if self._crawler.stats is not None:
            self._crawler.stats.inc_value(f"crawlyard/direct_count/{name}")

    def download(self, request: Request, scheme: str) -> Any:
        """Return what the project's handler returns: a coroutine or a Deferred."""
        handler = self.handler(scheme)
        if versions.is_coroutine_handler(handler):
            return handler.download_request(request)
        return handler.download_request(request, self._crawler.spider)

    def close(self) -> list[Any]:
        """Close the handlers; return what must be awaited."""
        closed = [handler.close() for handler in self._handlers.values() if _closes(handler)]
        return [each for each in closed if each is not None]


def _closes(handler: Any) -> bool:
    return hasattr(handler, "close")


class AgentDownloads:
    """Downloads of one crawler by the agents of the run."""

    def __init__(self, crawler: Crawler, session: Session) -> None:
        settings = crawler.settings
        session.start(settings)
        self._crawler = crawler
        self._session = session
        self._client = session.client
        self._hop = Hop()
        self._proxies = ProxyPolicy(settings)
        self._responses = ResponseMaker(crawler, chained=self._client.chained)
        self._timeout = options.download_timeout(settings)
        if settings.get("DOWNLOAD_BIND_ADDRESS"):
            log.warning("DOWNLOAD_BIND_ADDRESS is ignored: agents choose the address to send from")

    def download(self, request: Request) -> Deferred[Response]:
        """Return the response; the Deferred fires in the thread of the crawl."""
        if request.meta.get("bindaddress"):
            log.error(
                "The 'bindaddress' request meta key is not supported by %s and will be ignored.",
                AgentDownloadHandler.__name__,
            )
        url = urldefrag(request.url)[0]
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https"):
            raise unsupported_scheme(url)
        sent = self._request(request, url)
        request.meta.setdefault("download_timeout", sent.timeout_seconds)
        arrived: Deferred[ClientResult] = Deferred()
        self._client.submit(
            sent,
            host=parts.hostname or "",
            agent=str(request.meta.get(AGENT) or "") if self._client.chained else "",
            timeout_seconds=options.answer_seconds(sent.timeout_seconds or self._timeout),
            on_done=partial(self._arrived, arrived),
        )
        return arrived.addCallback(lambda answer: self._responses.response(request, url, answer))

    def _arrived(self, deferred: Deferred[ClientResult], answer: ClientResult) -> None:
        self._hop(partial(deferred.callback, answer))

    def _request(self, request: Request, url: str) -> DownloadRequest:
        """Raises ``DownloadRefused``."""
        if len(request.body) > MAX_CONTENT_BYTES:
            raise DownloadRefused(
                f"{request} has a body of {len(request.body)} bytes; at most {MAX_CONTENT_BYTES} "
                "can be sent"
            )
        return DownloadRequest(
            url=url,
            method=request.method,
            headers=_headers(request),
            body=request.body,
            timeout_seconds=float(request.meta.get("download_timeout") or self._timeout),
            max_bytes=self._responses.maxsize(request),
            proxy=self._proxies.proxy(request),
            ignore_robots=bool(request.meta.get("dont_obey_robotstxt")),
        )


def _headers(request: Request) -> HeaderPairs:
    """Return the headers as Scrapy holds them, without what is for a proxy alone."""
    return [
        (name, value)
        for name, values in request.headers.items()
        if name.lower() != _PROXY_AUTHORIZATION
        for value in values
    ]


class DownloadHandlerBase:
    """Base of the handlers: both interfaces of Scrapy over one that returns a Deferred."""

    lazy = False

    def __init__(self, crawler: Crawler) -> None:
        self._direct = _DirectDownloads(crawler)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Any:
        return cls(crawler)

    def _download(self, request: Request) -> Any:
        """Return a Deferred or a coroutine of the response."""
        raise NotImplementedError

    if TYPE_CHECKING or versions.HANDLERS_ARE_COROUTINES:

        async def download_request(self, request: Request) -> Response:
            started = self._download(request)
            if isinstance(started, Deferred):
                started = maybe_deferred_to_future(started)
            return cast("Response", await started)

        async def close(self) -> None:
            for closing in self._direct.close():
                await (
                    maybe_deferred_to_future(closing) if isinstance(closing, Deferred) else closing
                )

    else:

        def download_request(self, request: Request, spider: Spider) -> Deferred[Response]:
            return cast("Deferred[Response]", self._download(request))

        def close(self) -> Any:
            from twisted.internet.defer import DeferredList

            return DeferredList(self._direct.close())


class _Companion(NamedTuple):
    """Package whose handler downloads requests with a key of their own in ``meta``."""

    key: str
    setting: str
    type: DownloaderType


# scrapy-playwright and scrapy-impersonate.
_COMPANIONS: Final = (
    _Companion("playwright", options.BROWSER, DownloaderType.BROWSER),
    _Companion("impersonate", options.IMPERSONATE, DownloaderType.IMPERSONATE),
)


class AgentDownloadHandler(DownloadHandlerBase):
    """Handler of http and https."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        session = current()
        if session is None:
            raise NotConfigured("this process executes no run of the platform")
        self._agents = AgentDownloads(crawler, session)
        self._type = session.run.downloader.type
        self._warned: set[str] = set()
        self._by_project = {
            companion.key
            for companion in _COMPANIONS
            if options.choice(crawler.settings, companion.setting) == "direct"
        }
        if self._by_project:
            # A browser is started by a signal that comes before the first request.
            for scheme in ("http", "https"):
                if self._direct.is_foreign(scheme):
                    self._direct.handler(scheme)

    def _download(self, request: Request) -> Any:
        for companion in _COMPANIONS:
            if request.meta.get(companion.key):
                scheme = urlsplit(request.url).scheme
                if companion.key in self._by_project and self._direct.is_foreign(scheme):
                    self._direct.count(companion.key)
                    return self._direct.download(request, scheme)
                self._warn_of_type(companion)
        return self._agents.download(request)

    def _warn_of_type(self, companion: _Companion) -> None:
        if self._type is not companion.type and companion.key not in self._warned:
            self._warned.add(companion.key)
            log.warning(
                "requests have meta[%r], and the job's downloader is %r: choose the downloader "
                "%r in the job, or set %s to 'direct'",
                companion.key,
                str(self._type),
                str(companion.type),
                companion.setting,
            )


class DirectDownloadHandler(DownloadHandlerBase):
    """Handler of a scheme that the job allows past the agents."""

    def _download(self, request: Request) -> Any:
        scheme = urlsplit(request.url).scheme
        self._direct.count(scheme)
        return self._direct.download(request, scheme)


class RefusedDownloadHandler:
    """Handler of a scheme that the job does not allow: Scrapy shows the reason."""

    lazy = False

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Any:
        raise NotConfigured(
            f"it goes past the agents; the setting {options.DIRECT_SCHEMES} lists what may"
        )
