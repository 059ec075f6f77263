"""Downloader type "browser": pages rendered by Chromium (extra "browser").

One browser per agent; one context per downloader and outgoing address, so that runs share neither
cookies nor caches, and a site never sees the same cookies from two addresses. Chromium has the
egress proxy as its only way out and cannot resolve names: the SSRF guard covers all subresources.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Final

from playwright.async_api import BrowserContext, CDPSession, Page, Request, Response, Route
from playwright.async_api import Error as PlaywrightError
from playwright.async_api import TimeoutError as PlaywrightTimeout

from apps.agents.downloader.fetchers.address_switch import failure
from apps.agents.downloader.fetchers.chromium import BrowserHost
from apps.agents.downloader.fetchers.egress_proxy import EgressProxy
from apps.agents.downloader.fetchers.request_check import checked_request
from yardkit.fetched import Fetched
from yardkit.protocol import (
    DownloaderSettings,
    DownloadRequest,
    FailureKind,
    header_pairs,
    header_texts,
)

# Limit of decoded bytes of a page with its subresources; beyond, the present DOM is returned.
_MOST_PAGE_BYTES: Final = 64 * 1024 * 1024
_MOST_CONTEXTS: Final = 4
_CLOSE_SECONDS: Final = 1.0
_ERROR_CHARACTERS: Final = 300
_SNAPSHOT_ATTEMPTS: Final = 3
_SCREENSHOT_SECONDS: Final = 5.0
_SCREENSHOT_QUALITY: Final = 60
_SAY_MORE_SECONDS: Final = 0.5
_NO_PAGE: Final = "ERR_HTTP_RESPONSE_CODE_FAILURE"
_SHOWN: Final = ("html", "xml")
_FAILURES: Final = {
    "ERR_TOO_MANY_REDIRECTS": FailureKind.TOO_MANY_REDIRECTS,
    "ERR_NAME_NOT_RESOLVED": FailureKind.DNS,
    "ERR_CONNECTION_REFUSED": FailureKind.REFUSED,
    "ERR_CONNECTION_RESET": FailureKind.RESET,
    "ERR_CONNECTION_CLOSED": FailureKind.RESET,
    "ERR_EMPTY_RESPONSE": FailureKind.RESET,
    "ERR_SSL_": FailureKind.TLS,
    "ERR_CERT_": FailureKind.TLS,
    "ERR_CONTENT_LENGTH_MISMATCH": FailureKind.DATA_LOSS,
    "ERR_INCOMPLETE_CHUNKED_ENCODING": FailureKind.DATA_LOSS,
    "ERR_TIMED_OUT": FailureKind.TIMEOUT,
    "ERR_CONNECTION_TIMED_OUT": FailureKind.TIMEOUT,
    "ERR_UNKNOWN_URL_SCHEME": FailureKind.BAD_REQUEST,
    "ERR_DISALLOWED_URL_SCHEME": FailureKind.BAD_REQUEST,
    "ERR_UNSAFE_REDIRECT": FailureKind.BAD_REQUEST,
    "ERR_UNSAFE_PORT": FailureKind.BAD_REQUEST,
    "ERR_INVALID_URL": FailureKind.BAD_REQUEST,
    "ERR_INVALID_REDIRECT": FailureKind.BAD_REQUEST,
    "ERR_INVALID_HTTP_RESPONSE": FailureKind.BAD_CONTENT,
    "ERR_CONTENT_DECODING_FAILED": FailureKind.BAD_CONTENT,
    "ERR_RESPONSE_HEADERS_TOO_BIG": FailureKind.BAD_CONTENT,
    "Download is starting": FailureKind.BAD_CONTENT,
}
# In an isolated world, unaffected by the scripts of the page.
_SNAPSHOT: Final = """(() => {
    const kind = document.doctype
    const head = kind ? new XMLSerializer().serializeToString(kind) + "\\n" : ""
    return (head + (document.documentElement?.outerHTML ?? "")).slice(0, %d)
})()"""


class BrowserFetcher:
    """Loads pages and returns the DOM after the load event, as HTML in UTF-8.

    Other content types are returned as sent. Status and headers are those of the page itself.
    ``user_agent`` is used if a project has set one, else the browser's.
    """

    def __init__(self, settings: DownloaderSettings, host: BrowserHost) -> None:
        self._settings = settings
        self._host = host
        self._contexts: dict[EgressProxy, BrowserContext] = {}
        self._in_use: dict[EgressProxy, int] = {}
        self._opening = asyncio.Lock()

    async def fetch(self, request: DownloadRequest, via: EgressProxy | None = None) -> Fetched:
        """Load one page. Raises nothing but ``asyncio.CancelledError``."""
        started = time.perf_counter()
        visit: _Visit | None = None
        try:
            url, seconds = checked_request(request, self._settings)
            if via is None:
                raise ValueError("no gate to go through")
            async with self._host.pages, self._page(via) as page:
                visit = _Visit(page, request, url, self._settings)
                async with asyncio.timeout(seconds):
                    fetched = await visit.load(seconds, started)
                fetched = await visit.with_screenshot(fetched)
        except TimeoutError:
            kind, text = FailureKind.TIMEOUT, "no complete answer in time"
        except _Unwanted as error:
            kind, text = error.kind, str(error)
        except ValueError as error:
            kind, text = FailureKind.BAD_REQUEST, _shortened(error)
        except PlaywrightError as error:
            kind, text = _classify(error, visit, via)
        else:
            refusal = via.refusal_in(fetched.headers)
            if refusal is None:
                return fetched
            kind, text = refusal
        return failure(request.url, kind, text, _since(started))

    async def close(self) -> None:
        """Close the contexts, and with them every page."""
        contexts, self._contexts = list(self._contexts.values()), {}
        await asyncio.gather(*(_close(context) for context in contexts))

    @contextlib.asynccontextmanager
    async def _page(self, via: EgressProxy) -> AsyncIterator[Page]:
        async with self._opening:
            context = self._contexts.pop(via, None)
            if context is None or not _lives(context):
                context = await self._new_context(via)
            self._contexts[via] = context  # last: the least recently used comes first
            self._in_use[via] = self._in_use.get(via, 0) + 1
            await self._close_idle()
        page: Page | None = None
        try:
            page = await context.new_page()
            yield page
        finally:
            self._in_use[via] -= 1
            if page is not None:
                with contextlib.suppress(PlaywrightError):
                    await page.close()
            if not self._in_use[via] and not self._settings.use_cookies:
                self._contexts.pop(via, None)
                await _close(context)

    async def _new_context(self, via: EgressProxy) -> BrowserContext:
        settings = self._settings
        user, password = via.login
        own_agent = settings.user_agent != DownloaderSettings().user_agent
        chromium = await self._host.chromium()
        return await chromium.new_context(
            proxy={"server": via.url, "username": user, "password": password},
            user_agent=settings.user_agent if own_agent and settings.user_agent else None,
            accept_downloads=False,
            service_workers="block",
        )

    async def _close_idle(self) -> None:
        idle = [gate for gate in self._contexts if not self._in_use.get(gate)]
        for gate in idle[: max(0, len(self._contexts) - _MOST_CONTEXTS)]:
            self._in_use.pop(gate, None)
            await _close(self._contexts.pop(gate))


class _Unwanted(Exception):
    """An answer that cannot be returned."""

    def __init__(self, kind: FailureKind, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class _Visit:
    """One page from its request to its snapshot."""

    def __init__(
        self, page: Page, request: DownloadRequest, url: str, settings: DownloaderSettings
    ) -> None:
        self.url = url
        self._page = page
        self._request = request
        self._settings = settings
        self._response: Response | None = None
        self._document = ""
        self._document_bytes = 0
        self._page_bytes = 0
        self._enough = asyncio.Event()
        self._broken = ""
        self._empty = False

    async def load(self, seconds: float, started: float) -> Fetched:
        """Load the page. Raises ``_Unwanted``, Playwright's errors, or ``TimeoutError``."""
        cdp = await self._page.context.new_cdp_session(self._page)
        self._page.on("popup", _close_popup)
        self._page.on("request", self._on_request)
        self._page.on("response", self._on_response)
        cdp.on("Network.requestWillBeSent", self._on_document)
        cdp.on("Network.dataReceived", self._on_data)
        cdp.on("Network.loadingFailed", self._on_failed)
        await cdp.send("Network.enable")
        await self._prepare()
        response = await self._go(cdp, seconds)
        hops = _hops(response.request)
        if len(hops) > self._settings.max_redirects + 1:
            raise _Unwanted(FailureKind.TOO_MANY_REDIRECTS, "too many redirects")
        if len(hops) > 1 and not self._settings.follow_redirects:
            first = await hops[0].response()
            if first is None:
                raise _Unwanted(FailureKind.CONNECTION, "the redirect has gone")
            return await self._fetched(first, b"", False, started)
        body, truncated = await self._body(cdp, response)
        return await self._fetched(response, body, truncated, started)

    async def with_screenshot(self, fetched: Fetched) -> Fetched:
        """Add what is visible of a page that is kept; without one if that fails."""
        if not self._settings.pages.chooses(self._request.url, fetched.status, fetched.failure):
            return fetched
        with contextlib.suppress(PlaywrightError, TimeoutError):
            async with asyncio.timeout(_SCREENSHOT_SECONDS):
                image = await self._page.screenshot(type="jpeg", quality=_SCREENSHOT_QUALITY)
                return replace(fetched, screenshot=image)
        return fetched

    async def _fetched(
        self, response: Response, body: bytes, truncated: bool, started: float
    ) -> Fetched:
        headers = header_pairs(
            [(header["name"], header["value"]) for header in await response.headers_array()]
        )
        url = self._request.url if response.request.redirected_from is None else response.url
        elapsed = _since(started)
        return Fetched(
            url, response.status, headers, body, FailureKind.NONE, "", elapsed, truncated
        )

    async def _prepare(self) -> None:
        """Set method, body and headers of the page request, not of its subresources."""
        request = self._request
        if self._settings.use_cookies and self._settings.cookies:
            await self._page.context.add_cookies(
                [
                    {"name": name, "value": value, "url": self.url}
                    for name, value in self._settings.cookies.items()
                ]
            )
        if request.method == "GET" and not request.body and not request.headers:
            return

        async def send(route: Route) -> None:
            headers = {**route.request.headers}
            headers |= {
                name.lower(): value for name, value in header_texts(header_pairs(request.headers))
            }
            with contextlib.suppress(PlaywrightError):
                await route.continue_(
                    method=request.method, headers=headers, post_data=request.body or None
                )

        await self._page.route(lambda url: True, send, times=1)

    async def _go(self, cdp: CDPSession, seconds: float) -> Response:
        going = asyncio.ensure_future(
            self._page.goto(self.url, wait_until="load", timeout=seconds * 1000)
        )
        enough = asyncio.ensure_future(self._enough.wait())
        try:
            await asyncio.wait([going, enough], return_when=asyncio.FIRST_COMPLETED)
            if self._broken and not going.done():
                # Reported for a page that never came, for which goto() has a
                # better error; or for one that broke in the middle, for which no
                # load event will come.
                await asyncio.wait([going], timeout=_SAY_MORE_SECONDS)
                if not going.done():
                    raise PlaywrightError(self._broken)
            elif not self._broken and self._enough.is_set() and self._response is not None:
                await cdp.send("Page.stopLoading")
                return self._response
            response = await going
        except PlaywrightError as error:
            # An error status without a body: Chromium shows a page of its own instead.
            if _NO_PAGE not in str(error) or self._response is None:
                raise
            self._empty = True
            return self._response
        finally:
            enough.cancel()
            going.cancel()
            await asyncio.gather(going, enough, return_exceptions=True)
        if response is None:
            raise _Unwanted(FailureKind.BAD_CONTENT, "no page loaded")
        return response

    async def _body(self, cdp: CDPSession, response: Response) -> tuple[bytes, bool]:
        limit = self._settings.max_body_bytes
        if self._empty:
            return b"", False
        kind = response.headers.get("content-type", "text/html").partition(";")[0].lower()
        if any(word in kind for word in _SHOWN):
            return await self._snapshot(cdp)
        if self._enough.is_set():
            raise _Unwanted(FailureKind.BAD_CONTENT, f"no HTML, and more than {limit} bytes")
        body = await response.body()
        return body[:limit], len(body) > limit

    async def _snapshot(self, cdp: CDPSession) -> tuple[bytes, bool]:
        limit = self._settings.max_body_bytes
        for left in reversed(range(_SNAPSHOT_ATTEMPTS)):
            try:
                tree = await cdp.send("Page.getFrameTree")
                world = await cdp.send(
                    "Page.createIsolatedWorld", {"frameId": tree["frameTree"]["frame"]["id"]}
                )
                answer = await cdp.send(
                    "Runtime.evaluate",
                    {
                        "expression": _SNAPSHOT % (limit + 1),
                        "contextId": world["executionContextId"],
                        "returnByValue": True,
                    },
                )
                break
            except PlaywrightError:
                # A script has navigated at this very moment.
                if not left:
                    raise
        text = str(answer["result"].get("value", ""))
        raw = text.encode("utf-8", "replace")
        truncated = self._enough.is_set() or len(raw) > limit
        return raw[:limit].decode("utf-8", "ignore").encode(), truncated

    # --- Chromium events -----------------------------------------------------------------------

    def _on_request(self, request: Request) -> None:
        if request.is_navigation_request() and request.frame == self._page.main_frame:
            self.url = request.url

    def _on_response(self, response: Response) -> None:
        request = response.request
        if request.is_navigation_request() and request.frame == self._page.main_frame:
            self._response = response

    def _on_document(self, event: dict[str, Any]) -> None:
        if not self._document and event["requestId"] == event.get("loaderId"):
            self._document = event["requestId"]

    def _on_data(self, event: dict[str, Any]) -> None:
        """Count decoded bytes as they arrive: stops decompression bombs."""
        size = event["dataLength"]
        self._page_bytes += size
        if event["requestId"] == self._document:
            self._document_bytes += size
        if (
            self._document_bytes > self._settings.max_body_bytes
            or self._page_bytes > _MOST_PAGE_BYTES
        ):
            self._enough.set()

    def _on_failed(self, event: dict[str, Any]) -> None:
        if event["requestId"] == self._document and not self._enough.is_set():
            self._broken = event.get("errorText") or "the page broke off"
            self._enough.set()


def _hops(request: Request) -> list[Request]:
    """Return the request and the redirects before it, the first one first."""
    hops = [request]
    while (before := hops[0].redirected_from) is not None:
        hops.insert(0, before)
    return hops


async def _close_popup(page: Page) -> None:
    with contextlib.suppress(PlaywrightError):
        await page.close()


async def _close(context: BrowserContext) -> None:
    with contextlib.suppress(PlaywrightError, TimeoutError):
        async with asyncio.timeout(_CLOSE_SECONDS):
            await context.close()


def _lives(context: BrowserContext) -> bool:
    return context.browser is not None and context.browser.is_connected()


def _classify(
    error: PlaywrightError, visit: _Visit | None, via: EgressProxy | None
) -> tuple[FailureKind, str]:
    if isinstance(error, PlaywrightTimeout):
        return FailureKind.TIMEOUT, "no complete answer in time"
    refusal = via.refusal_of(visit.url) if via is not None and visit is not None else None
    if refusal is not None:
        return refusal
    text = _shortened(error)
    kind = next((kind for mark, kind in _FAILURES.items() if mark in text), None)
    return kind or FailureKind.CONNECTION, text


def _shortened(error: Exception) -> str:
    text = str(error).partition("\nCall log:")[0] or type(error).__name__
    return text.encode("utf-8", "replace").decode("utf-8")[:_ERROR_CHARACTERS]


def _since(started: float) -> float:
    return (time.perf_counter() - started) * 1000.0
