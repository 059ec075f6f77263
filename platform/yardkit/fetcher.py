"""HTTP fetcher of agents and of local spiders.

Invalid pages, requests and refused addresses are results with ``Fetched.failure``, never
exceptions. The address guard is at socket creation, so redirects and DNS changes meet it, too.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Iterable, Mapping, Sequence
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final, Protocol

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from yardkit import addresses
from yardkit.addresses import AddressFault, AddressRefused, NameUnresolved
from yardkit.body_stream import BodyIncomplete, BodyStream, BodyTooLarge, read_body
from yardkit.bridge import in_daemon_thread
from yardkit.content import decode_content, stream_decoder
from yardkit.fetch_failures import classify
from yardkit.fetched import BodyNotStored, Exchange, Fetched, OpenSink
from yardkit.names import CONTROL
from yardkit.protocol import (
    DownloaderSettings,
    DownloadRequest,
    FailureKind,
    HeaderPairs,
    StoredBody,
    header_pairs,
    header_texts,
)
from yardkit.tls import server_verification
from yardkit.wire_headers import sendable_headers
from yardkit.wire_url import WireCookieJar, WireRequest, WireResponse, as_written

# Short: in a broad crawl every site keeps a socket open for this time.
KEEPALIVE_SECONDS: Final = 15.0
DNS_CACHE_SECONDS: Final = 30
_MAX_LOOKUPS: Final = 32
_MAX_TIMEOUTS_KEPT: Final = 64
_READ_BUFFER_BYTES: Final = 256 * 1024
_MAX_HEADER_BYTES: Final = 32 * 1024
# The largest body that a run may ask for, and the largest in memory.
MAX_BODY_BYTES: Final = 10 * 1024**3
MAX_MEMORY_BYTES: Final = 256 * 1024 * 1024
# A longer body is stored while it arrives.
STREAM_BYTES: Final = 8 * 1024 * 1024
# What aiohttp adds to a request by itself, besides Host and Content-Length.
_AUTOMATIC_HEADERS: Final = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")


class Via(Protocol):
    """A local proxy of this process that applies the guard."""

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the proxy on this machine."""

    @property
    def login(self) -> tuple[str, str]:
        """User and password that the proxy requires."""

    def refusal_in(self, headers: Iterable[tuple[str, str]]) -> tuple[FailureKind, str] | None:
        """Return kind and reason if the proxy sent these response headers, None if a site did."""


class Fetcher:
    """Download for one owner, with its own connections, cookies and limits.

    Create and close it in the running event loop. The caller enforces ``concurrency``. Configured
    cookies are sent to every host; received ones return to their host.

    Args:
        open_sink: returns a sink for a body over ``STREAM_BYTES``; without one such a body stays
            in memory, up to ``MAX_MEMORY_BYTES``.

    Raises ``ValueError`` for invalid settings.
    """

    def __init__(self, settings: DownloaderSettings, open_sink: OpenSink | None = None) -> None:
        self.settings = settings
        self._open_sink = open_sink
        self._networks = addresses.parse_networks(settings.allowed_networks)
        self._check_settings()
        self._tls = server_verification(settings)
        # Rules for texts need the text.
        self._decodes = not settings.raw_bodies or bool(settings.cut or settings.decode_html)
        self._session: aiohttp.ClientSession | None = None
        self._timeouts: dict[float, aiohttp.ClientTimeout] = {}
        self._gates: set[tuple[str, int]] = set()
        # aiohttp also counts the answer that would be one redirect too many.
        self._max_redirects = settings.max_redirects + 1

    def _check_settings(self) -> None:
        settings = self.settings
        if not 0 < settings.timeout_seconds < float("inf"):
            raise ValueError(f"timeout_seconds is {settings.timeout_seconds}; use more than 0")
        if settings.max_body_bytes < 1:
            raise ValueError(f"max_body_bytes is {settings.max_body_bytes}; use 1 or more")
        if settings.max_redirects < 0:
            raise ValueError(f"max_redirects is {settings.max_redirects}; use 0 or more")
        if settings.concurrency < 1:
            raise ValueError(f"concurrency is {settings.concurrency}; use 1 or more")
        check_cookies(settings.cookies)
        try:
            SimpleCookie(settings.cookies)
        except CookieError as error:
            raise ValueError(f"cookies: {error}; use names without blanks") from error

    async def close(self) -> None:
        """Close every connection; later ``fetch`` calls fail."""
        session = self._open()
        await session.close()

    async def fetch(self, request: DownloadRequest, via: Via | None = None) -> Fetched:
        """Download one page. Raises nothing but ``asyncio.CancelledError``."""
        started = time.perf_counter()
        session = self._session or self._open()
        try:
            async with session.request(
                request.method,
                as_written(request.url),
                headers=sendable_headers(request.headers),
                data=request.body or None,
                allow_redirects=self.settings.follow_redirects,
                max_redirects=self._max_redirects,
                timeout=self._timeout(request.timeout_seconds),
                **self._proxy(request, via),
            ) as response:
                if via is not None:
                    _raise_refusal(via, response.raw_headers)
                return await self._fetched(request, response, started)
        except FetchRefused as refused:
            kind, text = refused.kind, refused.text
        except Exception as error:  # noqa: BLE001 - classified below; one page must not stop others
            kind, text = classify(error, request, self._networks)
            if via is not None and isinstance(error, aiohttp.ClientHttpProxyError):
                kind, text = via.refusal_in((error.headers or {}).items()) or (kind, text)
        elapsed = (time.perf_counter() - started) * 1000.0
        return Fetched(request.url, 0, [], b"", kind, text, elapsed, False)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            exact = self.settings.exact_headers
            headers = {} if exact else {"Accept": "*/*", "Accept-Encoding": "gzip, deflate"}
            if self.settings.user_agent and not exact:
                headers["User-Agent"] = self.settings.user_agent
            self._session = aiohttp.ClientSession(
                connector=_connector(self._networks, self._gates, self._tls),
                cookies=(self.settings.cookies or None) if self.settings.use_cookies else None,
                cookie_jar=(
                    WireCookieJar(unsafe=True)
                    if self.settings.use_cookies
                    else aiohttp.DummyCookieJar()
                ),
                request_class=WireRequest,
                response_class=WireResponse,
                requote_redirect_url=False,
                headers=headers,
                skip_auto_headers=_AUTOMATIC_HEADERS if exact else None,
                auto_decompress=False,
                timeout=self._timeout(None),
                read_bufsize=_READ_BUFFER_BYTES,
                max_line_size=_MAX_HEADER_BYTES,
                max_field_size=_MAX_HEADER_BYTES,
            )
        return self._session

    def _timeout(self, seconds: float | None) -> aiohttp.ClientTimeout:
        seconds = self.settings.timeout_seconds if seconds is None else seconds
        timeout = self._timeouts.get(seconds)
        if timeout is None:
            if len(self._timeouts) >= _MAX_TIMEOUTS_KEPT:
                self._timeouts.clear()
            if not 0 < seconds < float("inf"):
                raise ValueError(f"timeout_seconds is {seconds}; use more than 0")
            timeout = self._timeouts[seconds] = aiohttp.ClientTimeout(total=seconds)
        return timeout

    def _proxy(self, request: DownloadRequest, via: Via | None) -> dict[str, Any]:
        """Return the options of the proxy: that of this process, else that of the request."""
        if via is None:
            return {"proxy": _proxy_url(request.proxy)} if request.proxy else {}
        host, port = via.address
        self._gates.add(via.address)
        user, password = via.login
        return {
            "proxy": URL.build(scheme="http", user=user, password=password, host=host, port=port)
        }

    async def _fetched(
        self, request: DownloadRequest, response: aiohttp.ClientResponse, started: float
    ) -> Fetched:
        headers_ms = (time.perf_counter() - started) * 1000.0
        headers: HeaderPairs = list(response.raw_headers)
        length = response.content_length
        body, truncated, failure, error = b"", False, FailureKind.NONE, ""
        stored: StoredBody | None = None
        limit = self.settings.max_body_bytes
        if request.max_bytes is not None:
            limit = request.max_bytes or MAX_BODY_BYTES
        try:
            if request.max_bytes is not None and request.method != "HEAD" and (length or 0) > limit:
                raise BodyTooLarge(f"the body has {length} bytes; the request takes {limit}")
            stream = self._stream(response, limit, cuts=request.max_bytes is None)
            most = STREAM_BYTES if stream is not None else MAX_MEMORY_BYTES
            body, truncated = await read_body(response, min(limit, most))
            if truncated and stream is not None and limit > most:
                stored, truncated = await stream.store(body)
                body = b""
            body = body[:limit]
            if truncated:
                response.close()
                if request.max_bytes is not None:
                    raise BodyTooLarge(f"the body has more than the {limit} bytes of the request")
        except BodyTooLarge as too_large:
            response.close()
            body, truncated, failure, error = b"", False, FailureKind.TOO_LARGE, str(too_large)
        except BodyIncomplete as incomplete:
            body, failure, error = incomplete.part, FailureKind.DATA_LOSS, str(incomplete)
        except BodyNotStored as problem:
            response.close()
            body, failure, error = b"", FailureKind.BODY_STORE, str(problem)
        exchange = None
        if self.settings.pages.chooses(request.url, response.status, failure):
            exchange = _exchange(response, body)
        encoding = response.headers.get("Content-Encoding")
        if encoding and body and self._decodes:
            partial = truncated or failure == FailureKind.DATA_LOSS
            most = min(limit, MAX_MEMORY_BYTES)
            body, cut = await decode_content(body, encoding, most, partial=partial)
            truncated = truncated or cut
            if self.settings.raw_bodies:
                headers = [pair for pair in headers if pair[0].lower() != b"content-encoding"]
        version = response.version
        wire = response if isinstance(response, WireResponse) else None
        return Fetched(
            _final_url(request.url, response),
            response.status,
            headers,
            body,
            failure,
            error,
            (time.perf_counter() - started) * 1000.0,
            truncated,
            headers_ms=headers_ms,
            length=-1 if length is None else length,
            protocol=f"HTTP/{version.major}.{version.minor}" if version is not None else "",
            peer=wire.peer if wire and not request.proxy else "",
            certificate=wire.certificate() if wire and self.settings.certificates else b"",
            exchange=exchange,
            stored=stored,
        )

    def _stream(
        self, response: aiohttp.ClientResponse, limit: int, *, cuts: bool
    ) -> BodyStream | None:
        """Return what stores a long body while it arrives; None if it must stay in memory."""
        settings = self.settings
        if self._open_sink is None or settings.cut or settings.decode_html:
            return None
        encoding = response.headers.get("Content-Encoding", "") if self._decodes else ""
        decoder = None
        if encoding:
            decoder = stream_decoder(encoding)
            if decoder is None:
                return None
        return BodyStream(response, self._open_sink, decoder, limit, cuts=cuts)


def _exchange(response: aiohttp.ClientResponse, body: bytes) -> Exchange:
    first = response.history[0] if response.history else response
    sent = first.request_info
    return Exchange(
        sent.method,
        sent.url.raw_path_qs,
        header_pairs(list(sent.headers.items())),
        response.reason or "",
        list(response.raw_headers),
        body,
    )


def check_cookies(cookies: Mapping[str, str]) -> None:
    """Raise ``ValueError`` for control characters in a cookie, without its value.

    Some Python versions refuse them with the value in the text, others send them quoted.
    """
    for name, value in cookies.items():
        if CONTROL.search(name) or CONTROL.search(value):
            raise ValueError(f"cookies: control characters in {name[:40]!r}; use none")


class FetchRefused(Exception):
    """The address guard has refused a request: ``kind`` and ``text``."""

    def __init__(self, kind: FailureKind, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text


def _raise_refusal(via: Via, raw: Sequence[tuple[bytes, bytes]]) -> None:
    refusal = via.refusal_in(header_texts(raw))
    if refusal is not None:
        raise FetchRefused(*refusal)


def _proxy_url(text: str) -> URL:
    """Return the address of a request's proxy. Raises ``ValueError`` without its password."""
    url = URL(text)
    if url.scheme not in ("http", "https") or not url.raw_host:
        raise ValueError(f"bad proxy: {url.scheme or 'no scheme'}; use http://host:port")
    return url


def _final_url(asked: str, response: aiohttp.ClientResponse) -> str:
    as_asked = not response.history and asked.endswith(response.url.raw_path_qs)
    return asked if as_asked else str(response.url)


# --- connections ------------------------------------------------------------------------------


def _connector(
    networks: tuple[addresses.Network, ...], gates: set[tuple[str, int]], tls: ssl.SSLContext | bool
) -> aiohttp.TCPConnector:
    def guarded_socket(info: Any) -> socket.socket:
        family, kind, protocol, _, address = info
        blocked = addresses.is_blocked_ip(address[0], networks)
        if blocked and (address[0], address[1]) not in gates:
            raise AddressRefused(f"{address[0]}: {blocked}")
        return socket.socket(family=family, type=kind, proto=protocol)

    return aiohttp.TCPConnector(
        limit=0,
        limit_per_host=0,
        keepalive_timeout=KEEPALIVE_SECONDS,
        ttl_dns_cache=DNS_CACHE_SECONDS,
        resolver=GuardedResolver(networks),
        socket_factory=guarded_socket,
        ssl=tls,
    )


class GuardedResolver(AbstractResolver):
    """The system's resolver; one blocked address refuses the whole name.

    Runs in daemon threads: a lookup may hang for half a minute, and the interpreter waits for pool
    threads.
    """

    def __init__(self, networks: tuple[addresses.Network, ...]) -> None:
        self._networks = networks
        self._places = asyncio.Semaphore(_MAX_LOOKUPS)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Raises ``AddressRefused``, ``NameUnresolved`` or ``ValueError`` (no name)."""
        async with self._places:
            verdict = await in_daemon_thread(self._check, host)
        if verdict.problem == AddressFault.MALFORMED:
            raise ValueError(f"bad URL: {host}: {verdict.reason}")
        if verdict.problem == AddressFault.UNRESOLVED:
            raise NameUnresolved(verdict.reason)
        if verdict.problem:
            raise AddressRefused(f"{host}: {verdict.reason}")
        return [
            {
                "hostname": host,
                "host": address,
                "port": port,
                "family": socket.AF_INET6 if ":" in address else socket.AF_INET,
                "proto": 0,
                "flags": socket.AI_NUMERICHOST,
            }
            for address in verdict.addresses
            if family in (socket.AF_UNSPEC, socket.AF_INET6 if ":" in address else socket.AF_INET)
        ]

    async def close(self) -> None:
        """Do nothing: no resources are held."""

    def _check(self, host: str) -> addresses.AddressVerdict:
        return addresses.check_address(host, allowed_networks=self._networks)
