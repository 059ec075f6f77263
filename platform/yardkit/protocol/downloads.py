"""Requests and answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from yardkit.protocol.base import FailureKind, Message

# RabbitMQ 4 refuses longer messages unless it is configured otherwise (``max_message_size``).
MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
# Encoded requests, or the body of one result, in one message. MessagePack adds a few bytes to a
# body; the rest is for URLs, headers and what the other items of a message need.
MAX_CONTENT_BYTES: Final = 12 * 1024 * 1024


class DownloadRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One page to fetch, as the agent needs it."""

    url: str
    method: str = "GET"
    headers: dict[str, str] = {}
    body: bytes = b""
    timeout_seconds: float | None = None


class RequestItem(msgspec.Struct, frozen=True, array_like=True):
    """A request on its way. ``request`` stays encoded: the center routes it without reading it."""

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
    """Requests of one run, center to one agent; void 60 s after ``dispatched_at``."""

    run: int
    reply_to: str
    items: list[RequestItem]
    dispatched_at: float
    # Where to say how the hosts answered (``DownloadsFinished``); "" for nobody.
    report_to: str = ""


class DownloadResult(msgspec.Struct, frozen=True, array_like=True):
    """One answer. ``status`` is 0 when there was none, and ``failure`` then says why."""

    id: int
    attempt: int
    url: str
    status: int
    headers: list[tuple[str, str]]
    body: bytes
    failure: FailureKind = FailureKind.NONE
    error: str = ""
    elapsed_ms: float = 0.0
    truncated: bool = False
    compressed: bool = False


class DownloadResults(Message, frozen=True, kw_only=True, tag="download_results"):
    """Answers of one agent to one run."""

    run: int
    agent: str
    items: list[DownloadResult]


class Skipped(Message, frozen=True, kw_only=True, tag="skipped"):
    """The center did not dispatch these (id, attempt); the run retries them and counts them.

    ``withdrawn``: because the run wanted them back (``Withdraw``), and for no fault of anybody.
    """

    run: int
    reason: str
    items: list[tuple[int, int]]
    withdrawn: bool = False


class Refused(Message, frozen=True, kw_only=True, tag="refused"):
    """The center will never dispatch these (id, attempt), robots.txt forbids them: they failed."""

    run: int
    reason: str
    items: list[tuple[int, int]]


class Held(Message, frozen=True, kw_only=True, tag="held"):
    """The center has these (id, attempt) and sends them later, so that their host is not hurried.

    They are told of again before ``wait_seconds`` are over if it takes longer. Time-outs start
    with ``Dispatched``; if neither comes in time the center is gone and the run tries again.
    ``center`` is the queue where the run can ask for them back; "" with a center that gives none.
    """

    run: int
    reason: str
    wait_seconds: float
    items: list[tuple[int, int]]
    center: str = ""


class Withdraw(Message, frozen=True, kw_only=True, tag="withdraw"):
    """A run that pauses wants back what the center holds of it; it comes as ``Skipped``."""

    run: int
    token: str


class Dispatched(Message, frozen=True, kw_only=True, tag="dispatched"):
    """These (id, attempt), held until now, are on their way to an agent."""

    run: int
    items: list[tuple[int, int]]


class HostResult(msgspec.Struct, frozen=True, array_like=True):
    """How one host answered: ``busy`` counts 429 and 503; ``retry_after`` is what it asked for."""

    host: str
    finished: int
    busy: int = 0
    retry_after_seconds: float = 0.0


class DownloadsFinished(Message, frozen=True, kw_only=True, tag="downloads_finished"):
    """An agent to the center that sent it a run's requests: so many of them have ended."""

    run: int
    agent: str
    hosts: list[HostResult]
