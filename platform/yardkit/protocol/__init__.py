"""Every message that travels between Crawlyard's own processes.

Inside the platform messages are MessagePack, because page bodies are bytes. A reader accepts
the current version and the one before it, so that a cluster can be upgraded daemon by daemon;
anything else is a ``ProtocolError``, which the consumer turns into a dead letter with a reason.
"""

from __future__ import annotations

from yardkit.protocol.agents import (
    Allocate,
    Allocated,
    AllocateDownloader,
    CutRule,
    DownloaderReady,
    DownloaderSettings,
    ExitAgent,
    Heartbeat,
    Register,
    Release,
    ReleaseDownloader,
)
from yardkit.protocol.base import (
    ACCEPTED_VERSIONS,
    RETRYABLE_FAILURES,
    VERSION,
    DownloaderType,
    FailureKind,
    Message,
    Policy,
    ProtocolError,
)
from yardkit.protocol.codec import AnyMessage, decode, decode_request, encode, encode_request
from yardkit.protocol.downloads import (
    Dispatched,
    DownloadBatch,
    DownloadCommand,
    DownloadRequest,
    DownloadResult,
    DownloadResults,
    DownloadsFinished,
    Held,
    HostResult,
    Refused,
    RequestItem,
    Skipped,
)
from yardkit.protocol.runs import (
    CenterCounters,
    Event,
    FailureNote,
    RunCounters,
    RunQueued,
)

__all__ = [
    "ACCEPTED_VERSIONS",
    "RETRYABLE_FAILURES",
    "VERSION",
    "Allocate",
    "AllocateDownloader",
    "Allocated",
    "AnyMessage",
    "CenterCounters",
    "CutRule",
    "Dispatched",
    "DownloadBatch",
    "DownloadCommand",
    "DownloadRequest",
    "DownloadResult",
    "DownloadResults",
    "DownloaderReady",
    "DownloaderSettings",
    "DownloaderType",
    "DownloadsFinished",
    "Event",
    "ExitAgent",
    "FailureKind",
    "FailureNote",
    "Heartbeat",
    "Held",
    "HostResult",
    "Message",
    "Policy",
    "ProtocolError",
    "Refused",
    "Register",
    "Release",
    "ReleaseDownloader",
    "RequestItem",
    "RunCounters",
    "RunQueued",
    "Skipped",
    "decode",
    "decode_request",
    "encode",
    "encode_request",
]
