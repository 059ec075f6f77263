"""Encoding and decoding of messages."""

from __future__ import annotations

import msgspec

from yardkit.nesting import check_msgpack
from yardkit.protocol.addresses import Addresses, AddressesWanted
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
from yardkit.protocol.base import ACCEPTED_VERSIONS, VERSION, ProtocolError
from yardkit.protocol.downloads import (
    Dispatched,
    DownloadBatch,
    DownloadCommand,
    DownloadRequest,
    DownloadResults,
    DownloadsFinished,
    DownloadsHeld,
    DownloadsRefused,
    Skipped,
    Withdraw,
)
from yardkit.protocol.items import FileChunk, ItemBatch
from yardkit.protocol.pages import PageCounters
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
    | DownloadsRefused
    | DownloadsHeld
    | Dispatched
    | DownloadsFinished
    | Withdraw
    | RunQueued
    | RunCounters
    | CenterCounters
    | PageCounters
    | Samples
    | Lifecycle
    | LifecycleAnswer
    | LogBatch
    | ItemBatch
    | FileChunk
    | AddressesWanted
    | Addresses
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
    """Encode a message."""
    return _encoder.encode(message)


def decode(body: bytes) -> AnyMessage:
    """Decode a message. Raises ``ProtocolError``."""
    try:
        check_msgpack(body)
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
    """Return the version of a message, also of unreadable ones; None: no message."""
    try:
        check_msgpack(body)
        return _version_decoder.decode(body).v
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def encode_request(request: DownloadRequest) -> msgspec.Raw:
    """Encode a request once, for its whole way to the agent."""
    return msgspec.Raw(_encoder.encode(request))


def decode_request(raw: msgspec.Raw) -> DownloadRequest:
    """Decode the result of ``encode_request``, at the agent."""
    try:
        return _request_decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProtocolError(f"not a download request: {error}") from error
