"""Download requests and responses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from yardkit.protocol.addresses import StoredBody
from yardkit.protocol.base import FailureKind, Message

# RabbitMQ 4 refuses longer messages unless it is configured otherwise (``max_message_size``).
MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
# Encoded requests, or the body of one result, in one message. MessagePack adds a few bytes to a
# body; the rest is for URLs, headers and what the other items of a message need.
MAX_CONTENT_BYTES: Final = 12 * 1024 * 1024


# Headers in their order; a name may be repeated.
HeaderPairs: TypeAlias = list[tuple[bytes, bytes]]
# Those of a result: bytes, or text where the run reads version 1. (msgspec has no union of both.)
ResultHeaders: TypeAlias = list[tuple[Any, Any]]


def header_pairs(
    headers: Mapping[str, str] | Sequence[tuple[str | bytes, str | bytes]],
) -> HeaderPairs:
    """Return headers as bytes; text is written as UTF-8."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return [(_bytes(name), _bytes(value)) for name, value in pairs]


def header_texts(headers: Sequence[tuple[str | bytes, str | bytes]]) -> list[tuple[str, str]]:
    """Return headers as text: names as Latin-1, values as UTF-8 with U+FFFD for invalid bytes."""
    return [
        (
            name if isinstance(name, str) else name.decode("latin-1"),
            value if isinstance(value, str) else value.decode("utf-8", "replace"),
        )
        for name, value in headers
    ]


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")


class DownloadRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One page to fetch, as the agent needs it.

    ``headers``: by name, or in order as bytes where names repeat or bytes are no text.
    ``max_bytes``: a longer body, by its ``Content-Length`` or as received, fails with
    ``too_large``; 0: no limit but the message's; None: the run's ``max_body_bytes``, which cuts.
    ``proxy``: ``http://user:password@host:port``, which the agent uses instead of its own way.
    ``ignore_robots``: robots.txt does not count for this request, unless the host's rule says so.
    """

    url: str
    method: str = "GET"
    headers: dict[str, str] | HeaderPairs = {}
    body: bytes = b""
    timeout_seconds: float | None = None
    max_bytes: int | None = None
    proxy: str = ""
    ignore_robots: bool = False


class RequestItem(msgspec.Struct, frozen=True, array_like=True):
    """A request in transit. ``request`` stays encoded: the center routes it without decoding."""

    id: int
    attempt: int
    host: str
    agent: str
    request: msgspec.Raw


def batches(items: Sequence[RequestItem], most: int) -> Iterator[list[RequestItem]]:
    """Split into lists of at most ``most`` requests that fit into one message each."""
    batch: list[RequestItem] = []
    size = 0
    for item in items:
        length = len(item.request)
        if batch and (len(batch) >= most or size + length > MAX_CONTENT_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += length
    if batch:
        yield batch


class DownloadBatch(Message, frozen=True, kw_only=True, tag="download_batch"):
    """Requests of one run, spider to center."""

    run: int
    token: str
    reply_to: str
    items: list[RequestItem]
    sent_at: float


class DownloadCommand(Message, frozen=True, kw_only=True, tag="download"):
    """Requests of one run, center to one agent; expire 60 s after ``dispatched_at``."""

    run: int
    reply_to: str
    items: list[RequestItem]
    dispatched_at: float
    # Queue for ``DownloadsFinished``; "": no reports.
    report_to: str = ""


class DownloadResult(msgspec.Struct, frozen=True, array_like=True):
    """One response. ``status`` 0: none, and ``failure`` says why.

    ``elapsed_ms``: until the end of the body; ``headers_ms``: until the headers. ``length``: what
    ``Content-Length`` said, -1 for nothing. ``protocol``: "HTTP/1.1"; ``peer``: IP address of the
    server, "" behind a proxy; ``certificate``: DER, if the run asked for certificates. ``stored``:
    where the body is instead of ``body``, for runs with ``result_version`` 3 or later.
    """

    id: int
    attempt: int
    url: str
    status: int
    headers: ResultHeaders
    body: bytes
    failure: FailureKind = FailureKind.NONE
    error: str = ""
    elapsed_ms: float = 0.0
    truncated: bool = False
    compressed: bool = False
    headers_ms: float = 0.0
    length: int = -1
    protocol: str = ""
    peer: str = ""
    certificate: bytes = b""
    stored: StoredBody | None = None

    @property
    def size(self) -> int:
        """Bytes of the body, wherever it is."""
        return len(self.body) if self.stored is None else self.stored.size


class DownloadResults(Message, frozen=True, kw_only=True, tag="download_results"):
    """Responses of one agent to one run."""

    run: int
    agent: str
    items: list[DownloadResult]


class Skipped(Message, frozen=True, kw_only=True, tag="skipped"):
    """Requests (id, attempt) that the center did not dispatch; the run retries and counts them.

    ``withdrawn``: on the run's own request (``Withdraw``).
    """

    run: int
    reason: str
    items: list[tuple[int, int]]
    withdrawn: bool = False


class DownloadsRefused(Message, frozen=True, kw_only=True, tag="refused"):
    """Requests (id, attempt) that are never dispatched (robots.txt): they failed."""

    run: int
    reason: str
    items: list[tuple[int, int]]


class DownloadsHeld(Message, frozen=True, kw_only=True, tag="held"):
    """Requests (id, attempt) deferred by the center for politeness.

    Repeated before ``wait_seconds`` end. Timeouts start with ``Dispatched``; without either in time
    the center is dead and the run retries. ``center``: queue for ``Withdraw``; "": not supported.
    """

    run: int
    reason: str
    wait_seconds: float
    items: list[tuple[int, int]]
    center: str = ""


class Withdraw(Message, frozen=True, kw_only=True, tag="withdraw"):
    """Request of a pausing run to return held requests, answered by ``Skipped``."""

    run: int
    token: str


class Dispatched(Message, frozen=True, kw_only=True, tag="dispatched"):
    """Requests (id, attempt), held until now, that were sent to an agent."""

    run: int
    items: list[tuple[int, int]]


class HostResult(msgspec.Struct, frozen=True, array_like=True):
    """Results of one host: ``busy`` counts 429 and 503; ``retry_after`` in seconds."""

    host: str
    finished: int
    busy: int = 0
    retry_after_seconds: float = 0.0


class DownloadsFinished(Message, frozen=True, kw_only=True, tag="downloads_finished"):
    """Report of an agent to the center: finished requests by host."""

    run: int
    agent: str
    hosts: list[HostResult]
