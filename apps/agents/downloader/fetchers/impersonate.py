"""Downloader type "impersonate": the wire behaviour of a browser, by libcurl (extra "impersonate").

libcurl connects by itself, so it gets the egress proxy as its only way out, and no protocol but
HTTP: the guard then covers each redirect and each look-up.
"""

from __future__ import annotations

import time
from typing import Any, Final, cast

from curl_cffi import CurlECode, CurlInfo, CurlOpt
from curl_cffi.requests import AsyncSession
from curl_cffi.requests.exceptions import ImpersonateError, RequestException
from curl_cffi.requests.impersonate import REAL_TARGET_MAP, BrowserType
from yarl import URL

from apps.agents.downloader.fetchers.address_switch import failure
from apps.agents.downloader.fetchers.egress_proxy import EgressProxy
from apps.agents.downloader.fetchers.request_check import checked_request
from yardkit.addresses import is_blocked_ip
from yardkit.fetched import Fetched
from yardkit.protocol import (
    DownloaderSettings,
    DownloadRequest,
    FailureKind,
    header_pairs,
    header_texts,
)

_ERROR_CHARACTERS: Final = 300
# Return value of libcurl's write callback that ends the transfer.
_ENOUGH: Final = 0xFFFFFFFF
_OPTIONS: Final[dict[Any, Any]] = {
    CurlOpt.PROTOCOLS_STR: b"http,https",
    CurlOpt.REDIR_PROTOCOLS_STR: b"http,https",
    # Without it the environment could name hosts that bypass the egress proxy.
    CurlOpt.NOPROXY: b"",
    CurlOpt.PATH_AS_IS: 1,
}
_FAILURES: Final[dict[int, FailureKind]] = {
    CurlECode.OPERATION_TIMEDOUT: FailureKind.TIMEOUT,
    CurlECode.COULDNT_RESOLVE_HOST: FailureKind.DNS,
    CurlECode.SSL_CONNECT_ERROR: FailureKind.TLS,
    CurlECode.PEER_FAILED_VERIFICATION: FailureKind.TLS,
    CurlECode.RECV_ERROR: FailureKind.RESET,
    CurlECode.GOT_NOTHING: FailureKind.RESET,
    CurlECode.PARTIAL_FILE: FailureKind.DATA_LOSS,
    CurlECode.TOO_MANY_REDIRECTS: FailureKind.TOO_MANY_REDIRECTS,
    CurlECode.UNSUPPORTED_PROTOCOL: FailureKind.BAD_REQUEST,
    CurlECode.URL_MALFORMAT: FailureKind.BAD_REQUEST,
    CurlECode.BAD_CONTENT_ENCODING: FailureKind.BAD_CONTENT,
    CurlECode.WEIRD_SERVER_REPLY: FailureKind.BAD_CONTENT,
    CurlECode.TOO_LARGE: FailureKind.BAD_CONTENT,
}


class ImpersonatingFetcher:
    """Like ``Fetcher``, with the TLS, HTTP/2 and headers of ``settings.impersonate``.

    ``user_agent`` is used if a project has set one, else the browser's.

    Raises ``ValueError`` for a browser that curl_cffi does not know.
    """

    def __init__(self, settings: DownloaderSettings) -> None:
        self._settings = settings
        target = REAL_TARGET_MAP.get(settings.impersonate, settings.impersonate)
        if target not in {one.value for one in BrowserType}:
            raise ValueError(f"impersonate is {settings.impersonate[:40]!r}; use chrome or firefox")
        headers = {}
        if settings.user_agent and settings.user_agent != DownloaderSettings().user_agent:
            headers["User-Agent"] = settings.user_agent
        self._session: AsyncSession[Any] = AsyncSession(
            impersonate=target,
            headers=headers,
            cookies=settings.cookies if settings.use_cookies else None,
            discard_cookies=not settings.use_cookies,
            max_clients=settings.concurrency,
            max_redirects=settings.max_redirects,
            allow_redirects=settings.follow_redirects,
            trust_env=False,
            # A tunnel leaves every byte as libcurl sends it. Proxies refuse tunnels to port 80.
            curl_options=_OPTIONS | {CurlOpt.HTTPPROXYTUNNEL: int(not settings.use_proxy)},
            curl_infos=[CurlInfo.EFFECTIVE_URL],
        )

    async def fetch(self, request: DownloadRequest, via: EgressProxy | None = None) -> Fetched:
        """Download one page. Raises nothing but ``asyncio.CancelledError``."""
        started = time.perf_counter()
        body = _Body(self._settings.max_body_bytes)
        url = request.url
        try:
            url, seconds = checked_request(request, self._settings)
            if via is None:
                raise ValueError("no gate to go through")
            user, password = via.login
            response = await self._session.request(
                cast(Any, request.method),
                url,
                data=request.body or None,
                headers=header_texts(header_pairs(request.headers)),
                timeout=seconds,
                proxy=via.url,
                proxy_auth=(user, password),
                quote=False,
                content_callback=body.take,
            )
        except RequestException as error:
            response = error.response
            if not (body.full and response is not None):
                kind, text = _classify(error, via)
                return failure(request.url, kind, text, _since(started))
        except (ValueError, UnicodeError, ImpersonateError) as error:
            kind = FailureKind.BAD_REQUEST
            return failure(request.url, kind, _shortened(error), _since(started))
        except Exception as error:  # noqa: BLE001 - curl_cffi reads headers that servers make up
            kind = FailureKind.BAD_CONTENT
            return failure(request.url, kind, _shortened(error), _since(started))
        headers = [(name, value or b"") for name, value in response.headers.raw]
        refusal = via.refusal_in(header_texts(headers)) if via is not None else None
        if refusal is not None:
            return failure(request.url, *refusal, _since(started))
        return Fetched(
            response.url if response.redirect_count else request.url,
            response.status_code,
            headers,
            body.bytes(),
            FailureKind.NONE,
            "",
            _since(started),
            body.full,
        )

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()


class _Body:
    """Collects decoded bytes up to a limit; more end the transfer."""

    def __init__(self, limit: int) -> None:
        self.full = False
        self._limit = limit
        self._chunks: list[bytes] = []
        self._size = 0

    def take(self, chunk: bytes) -> int:
        """Append a chunk; called by libcurl with some ten KB at most."""
        room = self._limit - self._size
        self._chunks.append(chunk[:room])
        self._size += min(room, len(chunk))
        if len(chunk) > room:
            self.full = True
            return _ENOUGH
        return len(chunk)

    def bytes(self) -> bytes:
        return b"".join(self._chunks)


def _classify(error: RequestException, via: EgressProxy | None) -> tuple[FailureKind, str]:
    response = error.response
    if via is not None and response is not None:
        headers = [(name, value or "") for name, value in response.headers.multi_items()]
        refusal = via.refusal_in(headers) or via.refusal_of(response.url)
        if refusal is None and error.code == CurlECode.OUT_OF_MEMORY:
            refusal = _refused_literal(response.url)
        if refusal is not None:
            return refusal
    kind = _FAILURES.get(error.code, FailureKind.CONNECTION)
    if kind == FailureKind.TIMEOUT:
        return kind, "no complete answer in time"
    return kind, _shortened(error)


def _refused_literal(url: str) -> tuple[FailureKind, str] | None:
    """Refuse IPv6 literals that the guard forbids: libcurl fails on them before the proxy is
    asked.
    """
    host = URL(url).host or ""
    blocked = is_blocked_ip(host) if ":" in host else None
    return (FailureKind.ADDRESS_REFUSED, f"{host}: {blocked}") if blocked else None


def _shortened(error: Exception) -> str:
    text = str(error).partition(". See https://curl.se")[0] or type(error).__name__
    return text.encode("utf-8", "replace").decode("utf-8")[:_ERROR_CHARACTERS]


def _since(started: float) -> float:
    return (time.perf_counter() - started) * 1000.0
