"""Bodies that are no message of the protocol, for every queue somebody reads."""

from __future__ import annotations

import pickle
from typing import Final

import msgspec

from yardkit.protocol import MAX_MESSAGE_BYTES, DownloadCommand, Release, encode

_DEPTH: Final = 100_000
_TOO_MANY: Final = MAX_MESSAGE_BYTES + 1


def packed(**fields: object) -> bytes:
    """A MessagePack map."""
    return msgspec.msgpack.encode(fields)


def command(**changes: object) -> bytes:
    """A download command with some fields of the wrong kind, or too many."""
    fields = {"type": "download", "v": 1, "run": 7, "reply_to": "r", "items": [],
              "dispatched_at": 1.0}  # fmt: skip
    return packed(**(fields | changes))


def _nested(opening: bytes, closing: bytes = b"") -> bytes:
    return opening * _DEPTH + closing * _DEPTH


BAD_BODIES: Final[dict[str, bytes]] = {
    "empty": b"",
    "not-utf-8": b"\xff\xfe",
    "text-not-utf-8": b"\x81\xa4type\xa4\xff\xfe\xff\xfe",
    "field-not-utf-8": command(reply_to="rrrr").replace(b"rrrr", b"\xff\xfe\xff\xfe"),
    "json-nan": b'{"type":"download","dispatched_at":NaN}',
    "json-1e400": b'{"type":"download","dispatched_at":1e400}',
    "nan-as-number-of-a-run": command(run=float("nan")),
    "infinity-as-number-of-a-run": command(run=float("inf")),
    "type-nul": packed(type="\x00"),
    "body-nul": b"\x00",
    "deep": _nested(b"\x91"),
    "deep-json": _nested(b"[", b"]"),
    "deep-map": _nested(b"\x81\xa1a", b""),
    "deep-field": command(items="items!").replace(b"\xa6items!", _nested(b"\x91") + b"\xc0"),
    "deep-unknown-field": command(x="xxxxxx").replace(b"\xa6xxxxxx", _nested(b"\x91") + b"\xc0"),
    "number": msgspec.msgpack.encode(7),
    "list": msgspec.msgpack.encode(["download"]),
    "no-type": packed(run=7),
    "unknown-type": packed(type="nonsense", v=1),
    "type-of-type": packed(type=7),
    "run-as-text": command(run="seven"),
    "run-missing": packed(type="release"),
    "items-as-map": command(items={}),
    "version-99": encode(Release(run=7, token="", v=99)),
    "version-minus-1": encode(DownloadCommand(run=7, reply_to="", items=[], dispatched_at=0, v=-1)),
    "version-as-text": command(v="1"),
    "pickle": pickle.dumps({"type": "download"}),
    "seed-format": b"|Download|{}",
    "trailing": command() + b"\x00",
    "cut": command()[:-3],
    "too-long": b"x" * _TOO_MANY,
    "too-long-string": b"\xdb" + _TOO_MANY.to_bytes(4, "big") + b"x" * _TOO_MANY,
}  # fmt: skip
