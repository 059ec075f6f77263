"""Responses as fetchers return them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from yardkit.protocol import DownloadResult, FailureKind, HeaderPairs, StoredBody, header_texts


class BodyNotStored(Exception):
    """A body store could not take a body; the text says why."""


class BodySink(Protocol):
    """Takes a body of any size while it arrives."""

    async def write(self, data: bytes) -> None:
        """Append a piece. Raises ``BodyNotStored``."""

    async def finish(self) -> StoredBody:
        """Return where the body is. Raises ``BodyNotStored``."""

    async def abort(self) -> None:
        """Delete what was stored of it; an error of that is only logged."""


OpenSink: TypeAlias = Callable[[], BodySink]


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request as it was first sent, and its last response as received, for a kept page.

    ``target``: path and query. ``headers`` and ``body`` of the response are not decoded.
    """

    method: str
    target: str
    request_headers: HeaderPairs
    reason: str
    headers: HeaderPairs
    body: bytes


@dataclass(frozen=True, slots=True)
class Fetched:
    """One response. ``status`` is 0 without one, and ``failure`` says why.

    A failure ``data_loss`` or ``too_large`` has status and headers, the former also the part of
    the body that came. ``url`` is the last one after redirects; without any, the requested one as
    it was sent. ``raw_headers`` are as received; ``truncated``: the body was cut at the limit.
    ``stored``: where a large body is, instead of ``body``.
    ``headers_ms``, ``length``, ``protocol``, ``peer``, ``certificate``: as of ``DownloadResult``.
    """

    url: str
    status: int
    raw_headers: HeaderPairs
    body: bytes
    failure: FailureKind
    error: str
    elapsed_ms: float
    truncated: bool
    # Status (429 or 503, else 0) and Retry-After of an answer that ``switch_pattern`` matched, so
    # that the host is throttled whatever the final result of the request is.
    busy_status: int = 0
    retry_after: str = ""
    headers_ms: float = 0.0
    length: int = -1
    protocol: str = ""
    peer: str = ""
    certificate: bytes = b""
    # Of pages that are kept (``DownloaderSettings.pages``), as far as the fetcher has it.
    exchange: Exchange | None = None
    screenshot: bytes = b""
    stored: StoredBody | None = None

    @property
    def headers(self) -> list[tuple[str, str]]:
        """``raw_headers`` as text."""
        return header_texts(self.raw_headers)

    def header(self, name: bytes) -> str:
        """Return the first value of a header, given in lower case; "" without one."""
        values = (value for key, value in self.raw_headers if key.lower() == name)
        return next(values, b"").decode("utf-8", "replace")


def result_of(
    request_id: int, attempt: int, fetched: Fetched, body: bytes, *, compressed: bool = False
) -> DownloadResult:
    """Return a response as the answer to one attempt of a request."""
    return DownloadResult(
        request_id,
        attempt,
        fetched.url,
        fetched.status,
        list(fetched.raw_headers),
        body,
        fetched.failure,
        fetched.error,
        fetched.elapsed_ms,
        fetched.truncated,
        compressed,
        fetched.headers_ms,
        fetched.length,
        fetched.protocol,
        fetched.peer,
        fetched.certificate,
        fetched.stored,
    )
