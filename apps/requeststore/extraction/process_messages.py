"""Messages between ``ExtractionProcess`` and its child: MessagePack with a length prefix."""

from __future__ import annotations

import struct
from typing import IO, Any, Final, Protocol

import msgspec

from apps.requeststore.extraction.matches import RuleMatches
from apps.requeststore.extraction.page import ResponsePage
from apps.requeststore.extraction.rules import Extracted

_LENGTH: Final = struct.Struct(">I")
_CHUNK: Final = 1024 * 1024


class ExtractionJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Page to read. The first job of a ``key`` carries the rules."""

    key: str
    name: str
    page: ResponsePage
    rules: dict[str, Any] | None = None
    explain: bool = False


class JobAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Result of a job: one of the two fields."""

    extracted: Extracted | None = None
    explained: RuleMatches | None = None


class Readable(Protocol):
    """Readable end of a pipe; ``read`` may return fewer bytes than asked for."""

    def read(self, size: int, /) -> bytes: ...


def write_frame(pipe: IO[bytes], raw: bytes) -> None:
    """Write one message."""
    pipe.write(_LENGTH.pack(len(raw)))
    pipe.write(raw)
    pipe.flush()


def read_frame(pipe: Readable) -> bytes:
    """Read one message. Raises ``EOFError``."""
    (length,) = _LENGTH.unpack(_exactly(pipe, _LENGTH.size))
    return _exactly(pipe, length)


def _exactly(pipe: Readable, size: int) -> bytes:
    parts, left = [], size
    while left:
        part = pipe.read(min(left, _CHUNK))
        if not part:
            raise EOFError
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
