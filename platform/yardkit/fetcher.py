"""HTTP fetcher of agents and of local spiders.

Invalid pages, requests and refused addresses are results with ``Fetched.failure``, never
exceptions. The address guard is at socket creation, so redirects and DNS changes meet it, too.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final, Protocol

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from yardkit import addresses
from yardkit.addresses import AddressFault, AddressRefused
from yardkit.bridge import in_daemon_thread
from yardkit.content import BadContent, decode_content
from yardkit.names import CONTROL
from yardkit.protocol import DownloaderSettings, DownloadRequest, FailureKind
from yardkit.wire_url import WireCookieJar, WireRequest, as_written

# Short: in a broad crawl every site keeps a socket open for this time.
KEEPALIVE_SECONDS: Final = 15.0
DNS_CACHE_SECONDS: Final = 30
_MAX_LOOKUPS: Final = 32
_MAX_TIMEOUTS_KEPT: Final = 64
_READ_BUFFER_BYTES: Final = 256 * 1024
_MAX_HEADER_BYTES: Final = 32 * 1024
_ERROR_CHARACTERS: Final = 300


@dataclass(frozen=True, slots=True)
class Fetched:
    """One response. ``status`` is 0 when ``failure`` is set; ``body`` is decoded.

    ``url`` is the last one after redirects; without any, the requested one as it was sent.
    ``headers`` are as received; ``truncated``: the body was cut at the limit.
    """

    url: str
    status: int
    headers: list[tuple[str, str]]
    body: bytes
    failure: FailureKind
    error: str
    elapsed_ms: float
    truncated: bool
    # Status (429 or 503, else 0) and Retry-After of an answer that ``switch_pattern`` matched, so
    # that the host is throttled whatever the final result of the request is.
    busy_status: int = 0
    retry_after: str = ""


class Via(Protocol):
    """A local proxy of this process that applies the guard."""

    @property
    def address(self) -> tuple[str, int]:
        """Address it listens on."""

    @property
    def login(self) -> tuple[str, str]:
        """User and password it requires."""

    def refusal_in(self, headers: Iterable[tuple[str, str]]) -> tuple[FailureKind, str] | None:
        """Return its refusal if these headers are its own and not a page's."""


class Fetcher:
    """Download for one owner, with its own connections, cookies and limits.

    Create and close it in the running event loop. The caller enforces ``concurrency``. Configured
    cookies are sent to every host; received ones return to their host.

    Raises ``ValueError`` for invalid settings.
    """

    def __init__(self, settings: DownloaderSettings) -> None:
        self.settings = settings
        self._networks = addresses.parse_networks(settings.allowed_networks)
        self._check_settings()
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
        proxy = {} if via is None else self._proxy(via)
        try:
            async with session.request(
                request.method,
                as_written(request.url),
                headers=request.headers,
                data=request.body or None,
                allow_redirects=self.settings.follow_redirects,
                max_redirects=self._max_redirects,
                timeout=self._timeout(request.timeout_seconds),
                **proxy,
            ) as response:
                if via is not None:
                    _raise_refusal(via, response.raw_headers)
                body, truncated = await self._body(response)
                return Fetched(
                    _final_url(request.url, response),
                    response.status,
                    _headers(response.raw_headers),
                    body,
                    FailureKind.NONE,
                    "",
                    (time.perf_counter() - started) * 1000.0,
                    truncated,
                )
        except FetchRefused as refused:
            kind, text = refused.kind, refused.text
        except Exception as error:  # noqa: BLE001 - classified below; one page must not stop others
            kind, text = _classify(error, request, self._networks)
            if via is not None and isinstance(error, aiohttp.ClientHttpProxyError):
                kind, text = via.refusal_in((error.headers or {}).items()) or (kind, text)
        elapsed = (time.perf_counter() - started) * 1000.0
        return Fetched(request.url, 0, [], b"", kind, text, elapsed, False)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            headers = {"Accept": "*/*", "Accept-Encoding": "gzip, deflate"}
            if self.settings.user_agent:
                headers["User-Agent"] = self.settings.user_agent
            self._session = aiohttp.ClientSession(
                connector=_connector(self._networks, self._gates),
                cookies=(self.settings.cookies or None) if self.settings.use_cookies else None,
                cookie_jar=(
                    WireCookieJar(unsafe=True)
                    if self.settings.use_cookies
                    else aiohttp.DummyCookieJar()
                ),
                request_class=WireRequest,
                requote_redirect_url=False,
                headers=headers,
                auto_decompress=False,
                timeout=self._timeout(None),
                read_bufsize=_READ_BUFFER_BYTES,
                max_line_size=_MAX_HEADER_BYTES,
                max_field_size=_MAX_HEADER_BYTES,
            )
        return self._session

    def _timeout(self, seconds: float | None) -> aiohttp.ClientTimeout:
        seconds = self.settings.timeout_seconds if seconds is None else seconds
        found = self._timeouts.get(seconds)
        if found is None:
            if len(self._timeouts) >= _MAX_TIMEOUTS_KEPT:
                self._timeouts.clear()
            if not 0 < seconds < float("inf"):
                raise ValueError(f"timeout_seconds is {seconds}; use more than 0")
            found = self._timeouts[seconds] = aiohttp.ClientTimeout(total=seconds)
        return found

    def _proxy(self, via: Via) -> dict[str, Any]:
        host, port = via.address
        self._gates.add(via.address)
        user, password = via.login
        return {
            "proxy": URL.build(scheme="http", user=user, password=password, host=host, port=port)
        }

    async def _body(self, response: aiohttp.ClientResponse) -> tuple[bytes, bool]:
        limit = self.settings.max_body_bytes
        content = response.content
        truncated = False
        length = response.content_length
        if length is not None and length <= limit:
            # The parser hands out no more than it was promised, so no counting is needed.
            raw = await content.read()
        else:
            raw, truncated = await _read_limited(content, limit)
            if truncated:
                response.close()
        encoding = response.headers.get("Content-Encoding")
        if not encoding or not raw:
            return raw, truncated
        body, cut = await decode_content(raw, encoding, limit, partial=truncated)
        return body, truncated or cut


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
    refusal = via.refusal_in(_headers(raw))
    if refusal is not None:
        raise FetchRefused(*refusal)


async def _read_limited(content: aiohttp.StreamReader, limit: int) -> tuple[bytes, bool]:
    chunks: list[bytes] = []
    size = 0
    while True:
        chunk = await content.readany()
        if not chunk:
            return b"".join(chunks), False
        chunks.append(chunk)
        size += len(chunk)
        if size > limit:
            return b"".join(chunks)[:limit], True


def _final_url(asked: str, response: aiohttp.ClientResponse) -> str:
    as_asked = not response.history and asked.endswith(response.url.raw_path_qs)
    return asked if as_asked else str(response.url)


def _headers(raw: Sequence[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    # From the bytes: aiohttp's texts contain lone surrogates for invalid UTF-8, and its names are
    # not plain str; no message can carry either.
    return [(name.decode("latin-1"), value.decode("utf-8", "replace")) for name, value in raw]


def _classify(
    error: Exception, request: DownloadRequest, networks: tuple[addresses.Network, ...]
) -> tuple[FailureKind, str]:
    """Return the failure kind and text of an exception."""
    if isinstance(error, TimeoutError):
        return FailureKind.TIMEOUT, "no complete answer in time"
    if isinstance(error, aiohttp.ClientConnectorError):
        if isinstance(error.os_error, AddressRefused):
            return FailureKind.ADDRESS_REFUSED, _text(error.os_error)
        return FailureKind.CONNECTION, _text(error.os_error)
    if isinstance(error, aiohttp.TooManyRedirects):
        return FailureKind.TOO_MANY_REDIRECTS, "too many redirects"
    if isinstance(error, (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError)):
        return _classify_url(error, request, networks)
    if isinstance(error, BadContent):
        return FailureKind.BAD_CONTENT, _text(error)
    if isinstance(error, aiohttp.ClientResponseError):
        return FailureKind.BAD_CONTENT, _shortened(f"no valid HTTP: {error.message}")
    if isinstance(error, (aiohttp.ClientError, OSError)):
        return FailureKind.CONNECTION, _text(error)
    return FailureKind.BAD_REQUEST, _text(error)


def _classify_url(
    error: Exception, request: DownloadRequest, networks: tuple[addresses.Network, ...]
) -> tuple[FailureKind, str]:
    """Return the failure of a URL that the client rejected."""
    text = str(getattr(error, "url", request.url))
    try:
        host = URL(text).host or text
    except ValueError:
        host = text
    verdict = addresses.check_address(host, allowed_networks=networks, resolve=lambda _: ())
    if verdict.problem == AddressFault.BLOCKED:
        return FailureKind.ADDRESS_REFUSED, _shortened(f"{host}: {verdict.reason}")
    return FailureKind.BAD_REQUEST, _shortened(f"bad URL: {error}")


def _text(error: BaseException) -> str:
    return _shortened(str(error) or type(error).__name__)


def _shortened(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")[:_ERROR_CHARACTERS]


# --- connections ------------------------------------------------------------------------------


def _connector(
    networks: tuple[addresses.Network, ...], gates: set[tuple[str, int]]
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
        """Raises ``AddressRefused``, ``OSError`` (no address) or ``ValueError`` (no name)."""
        async with self._places:
            verdict = await in_daemon_thread(self._check, host)
        if verdict.problem == AddressFault.MALFORMED:
            raise ValueError(f"bad URL: {host}: {verdict.reason}")
        if verdict.problem == AddressFault.UNRESOLVED:
            raise OSError(verdict.reason)
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
