"""Every message, as bytes."""

from __future__ import annotations

import msgspec

from yardkit.protocol.agents import (
    Allocate,
    Allocated,
    AllocateDownloader,
    DownloaderReady,
    ExitAgent,
    Heartbeat,
    Register,
    Release,
    ReleaseDownloader,
)
from yardkit.protocol.base import (
    ACCEPTED_VERSIONS,
    VERSION,
    ProtocolError,
)
from yardkit.protocol.downloads import (
    Dispatched,
    DownloadBatch,
    DownloadCommand,
    DownloadRequest,
    DownloadResults,
    DownloadsFinished,
    Held,
    Refused,
    Skipped,
    Withdraw,
)
from yardkit.protocol.resources import ResourceCall, ResourceReply
from yardkit.protocol.runs import (
    CenterCounters,
    Event,
    Lifecycle,
    LifecycleAnswer,
    LogBatch,
    RunCounters,
    RunQueued,
)
from yardkit.protocol.samples import Samples
from yardkit.protocol.seeds import SeedCall, SeedReply

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
    | Refused
    | Held
    | Dispatched
    | DownloadsFinished
    | Withdraw
    | RunQueued
    | RunCounters
    | CenterCounters
    | Samples
    | Lifecycle
    | LifecycleAnswer
    | LogBatch
    | Event
    | SeedCall
    | SeedReply
    | ResourceCall
    | ResourceReply
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


class _Versioned(msgspec.Struct):
    type: str
    v: int = 1


_version_decoder = msgspec.msgpack.Decoder(_Versioned)


def version_of(body: bytes) -> int | None:
    """The version of a message, whether this process can read it or not; None: it is none."""
    try:
        return _version_decoder.decode(body).v
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def encode_request(request: DownloadRequest) -> msgspec.Raw:
    """Encode a request once, for the whole of its way to the agent."""
    return msgspec.Raw(_encoder.encode(request))


def decode_request(raw: msgspec.Raw) -> DownloadRequest:
    """The agent's side of ``encode_request``."""
    try:
        return _request_decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProtocolError(f"not a download request: {error}") from error
