"""Every message that travels between Crawlyard's own processes.

Inside the platform messages are MessagePack, because page bodies are bytes. A reader accepts
the current version and the one before it, so that a cluster can be upgraded daemon by daemon;
anything else is a ``ProtocolError``, which the consumer turns into a dead letter with a reason.
"""

from __future__ import annotations

import enum
from typing import Any, Final

import msgspec

VERSION: Final = 1
ACCEPTED_VERSIONS: Final = frozenset({VERSION, VERSION - 1})


class ProtocolError(ValueError):
    """A body that is no message of this protocol: what is wrong, and where in the body."""


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """Base of every message; the tag ``type`` names it, ``v`` is its version."""

    v: int = VERSION


class Policy(enum.StrEnum):
    """How a run's agents are chosen (seed S1.36)."""

    RANDOM = "random"
    FIXED = "fixed"
    CHAINED = "chained"


class FailureKind(enum.StrEnum):
    """Why a download has no usable answer."""

    NONE = ""
    CONNECTION = "connection"
    TIMEOUT = "timeout"
    ADDRESS_REFUSED = "address_refused"
    TOO_MANY_REDIRECTS = "too_many_redirects"
    BAD_REQUEST = "bad_request"
    BAD_CONTENT = "bad_content"
    DOWNLOADER_MISSING = "downloader_missing"


# What an agent or the engine may usefully try again; the others would fail the same way.
RETRYABLE_FAILURES: Final = frozenset(
    {FailureKind.CONNECTION, FailureKind.TIMEOUT, FailureKind.DOWNLOADER_MISSING}
)


# --- agents ---------------------------------------------------------------------------------


class Register(Message, frozen=True, kw_only=True, tag="register"):
    """An agent has started (seed S1.20, S1.21). Processed whatever its age."""

    agent: str
    name: str
    boot: str
    processors: int
    total_memory_bytes: int
    labels: dict[str, str] = {}
    version: str = ""


class Heartbeat(Message, frozen=True, kw_only=True, tag="heartbeat"):
    """Sent by each agent every 5 s; judged by the receiver's clock (seed S1.20, S1.22)."""

    agent: str
    name: str
    boot: str
    total_memory_bytes: int
    free_memory_bytes: int
    cpu_percent: float
    downloaders: int
    qps: float
    labels: dict[str, str] = {}
    version: str = ""


# --- allocation -----------------------------------------------------------------------------


class DownloaderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a downloader of one run is allowed and told to do. Sizes in bytes, times in seconds."""

    concurrency: int = 64
    timeout_seconds: float = 15.0
    max_body_bytes: int = 8 * 1024 * 1024
    max_redirects: int = 10
    follow_redirects: bool = True
    user_agent: str = "Crawlyard"
    cookies: dict[str, str] = {}
    # Networks a project has opened on purpose ("127.0.0.0/8"); private ranges are refused else.
    allowed_networks: list[str] = []


class Allocate(Message, frozen=True, kw_only=True, tag="allocate"):
    """A run asks the center for agents and waits for ``Allocated`` (seed S1.35)."""

    run: int
    token: str
    reply_to: str
    policy: Policy = Policy.RANDOM
    agents: int = 0
    settings: DownloaderSettings = DownloaderSettings()


class Allocated(Message, frozen=True, kw_only=True, tag="allocated"):
    """The center's answer. ``agents`` is empty and ``error`` says why when none could be had."""

    run: int
    agents: list[str]
    warning: str = ""
    error: str = ""


class Release(Message, frozen=True, kw_only=True, tag="release"):
    """A run has ended and gives its agents back."""

    run: int
    token: str


class AllocateDownloader(Message, frozen=True, kw_only=True, tag="allocate_downloader"):
    """The center tells one chosen agent to make a downloader for a run (seed S1.23)."""

    run: int
    reply_to: str
    settings: DownloaderSettings


class DownloaderReady(Message, frozen=True, kw_only=True, tag="downloader_ready"):
    """The agent's answer to the run itself (seed S1.31)."""

    run: int
    agent: str
    ok: bool
    reason: str = ""


class ReleaseDownloader(Message, frozen=True, kw_only=True, tag="release_downloader"):
    """The center tells an agent that a run needs its downloader no more."""

    run: int


class ExitAgent(Message, frozen=True, kw_only=True, tag="exit_agent"):
    """Ask an agent to finish what it holds and leave (seed S1.23)."""

    reason: str = ""


# --- downloads ------------------------------------------------------------------------------


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
    """The center did not dispatch these (id, attempt); the run retries them and counts them."""

    run: int
    reason: str
    items: list[tuple[int, int]]


# --- runs and accounting --------------------------------------------------------------------


class RunQueued(Message, frozen=True, kw_only=True, tag="run_queued"):
    """Wakes a runner; the run's row is the truth."""

    run: int


class FailureNote(msgspec.Struct, frozen=True, array_like=True):
    """A request that failed for good. ``seq`` counts from 1 inside (run, boot)."""

    seq: int
    url: str
    status: int
    reason: str


class RunCounters(Message, frozen=True, kw_only=True, tag="run_counters"):
    """Where a run stands: absolute counts since ``boot`` began, so a repeat changes nothing.

    ``total`` = distinct requests created; left = total - success - failed (seed S1.19).
    ``sent`` does not count retries; ``retried`` does. ``agents`` counts answers by agent.
    """

    run: int
    boot: str
    seq: int
    total: int = 0
    success: int = 0
    failed: int = 0
    sent: int = 0
    returned: int = 0
    retried: int = 0
    skipped: int = 0
    duplicates: int = 0
    pages: int = 0
    items: int = 0
    bytes_received: int = 0
    queued: int = 0
    in_flight: int = 0
    agents: dict[str, int] = {}
    failures: list[FailureNote] = []
    final: bool = False


class CenterCounters(Message, frozen=True, kw_only=True, tag="center_counters"):
    """What one center did for one run since ``boot`` began (absolute counts)."""

    run: int
    boot: str
    seq: int
    received: int = 0
    dispatched: int = 0
    skipped: int = 0
    expired: int = 0


class Event(Message, frozen=True, kw_only=True, tag="event"):
    """Something a page may want to show at once. Droppable: the page refetches."""

    kind: str
    project: int | None = None
    payload: dict[str, Any] = {}


AnyMessage = (
    Register
    | Heartbeat
    | Allocate
    | Allocated
    | Release
    | AllocateDownloader
    | DownloaderReady
    | ReleaseDownloader
    | ExitAgent
    | DownloadBatch
    | DownloadCommand
    | DownloadResults
    | Skipped
    | RunQueued
    | RunCounters
    | CenterCounters
    | Event
)

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[AnyMessage] = msgspec.msgpack.Decoder(AnyMessage)
_request_decoder = msgspec.msgpack.Decoder(DownloadRequest)


def encode(message: AnyMessage) -> bytes:
    """The bytes that go to the broker."""
    return _encoder.encode(message)


def decode(body: bytes) -> AnyMessage:
    """Read any message; raises ``ProtocolError`` for everything else."""
    try:
        message = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"not a message of this protocol: {error}") from error
    if message.v not in ACCEPTED_VERSIONS:
        raise ProtocolError(f"message version {message.v}; this process reads {VERSION}")
    return message


def encode_request(request: DownloadRequest) -> msgspec.Raw:
    """Encode a request once, for the whole of its way to the agent."""
    return msgspec.Raw(_encoder.encode(request))


def decode_request(raw: msgspec.Raw) -> DownloadRequest:
    """The agent's side of ``encode_request``."""
    try:
        return _request_decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProtocolError(f"not a download request: {error}") from error
