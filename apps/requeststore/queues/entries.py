"""Queue entries as bytes: ``{"id":"123","biz":"news","ts":1700000000000}``."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from apps.requeststore.engine.entity import MAX_PRIORITY
from apps.requeststore.engine.errors import BadEntry
from apps.requeststore.engine.limits import MAX_ID, MAX_TS
from apps.requeststore.stores.base import QueueEntry
from yardkit.names import IDENTIFIER
from yardkit.nesting import check_json

# Ours have about 70 bytes; foreign producers may add fields.
MAX_ENTRY_BYTES: Final = 4096
_DIGITS: Final = re.compile(r"[0-9]{1,19}")


class _Written(msgspec.Struct):
    id: str
    biz: str
    ts: int


class _ForeignEntry(msgspec.Struct):
    """Accepts what other producers write: numbers as numbers or text, and unknown fields."""

    id: int | str
    biz: str
    ts: int | str


_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(_ForeignEntry)


def write_entry(entry: QueueEntry) -> bytes:
    """Serialize with the ID as text: many readers lose digits beyond 2^53."""
    return _encoder.encode(_Written(str(entry.id), entry.biz, entry.ts))


def read_entry(body: bytes) -> QueueEntry:
    """Parse. Raises ``BadEntry``, whose text quotes nothing of the body."""
    if len(body) > MAX_ENTRY_BYTES:
        raise BadEntry(f"an entry has at most {MAX_ENTRY_BYTES} bytes; this one has {len(body)}")
    try:
        check_json(body)
        decoded = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadEntry(f"no entry {{id, biz, ts}}: {error}") from None
    entry = QueueEntry(
        _whole("id", decoded.id, MAX_ID), decoded.biz, _whole("ts", decoded.ts, MAX_TS)
    )
    if not IDENTIFIER.fullmatch(entry.biz):
        raise BadEntry("biz is no name: use a-z, 0-9 and _, at most 32, a letter first")
    return entry


def level_of(priority: int) -> int:
    """Limit a priority to 0..9, the range of every queue."""
    return min(max(priority, 0), MAX_PRIORITY)


def _whole(name: str, value: int | str, largest: int) -> int:
    if isinstance(value, str):
        if not _DIGITS.fullmatch(value):
            raise BadEntry(f"{name} is no whole number of at most 19 digits")
        value = int(value)
    if not 0 <= value <= largest:
        raise BadEntry(f"{name} is not in 0 to {largest}")
    return value
