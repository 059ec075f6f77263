"""Key layout in RocksDB: one sorted map, a prefix letter per table.

| Table | Key after the letter | Value |
|---|---|---|
| ``s`` status | frontier, segment, hash | ``STATUS`` |
| ``b`` body | frontier, segment, hash | immutable part of the seed |
| ``p`` pending | frontier, segment, due, number | hash, status |
| ``g`` grant (a lease) | generation | ``Grant`` |
| ``k`` counts | frontier, segment | ``SegmentRecord`` |
| ``x`` root of the store | nothing | ``ROOT`` |

Numbers are big-endian, so that keys sort numerically. A status is small and changes, a body may be
large and never changes; duplicates are detected by the status alone. A pending entry repeats the
status, so that leasing reads only entry and body.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import msgspec

from apps.seeds.engine.keys import HASH_BYTES
from apps.seeds.stores.base import SegmentCounts

VERSION: Final = 1
ROOT_KEY: Final = b"x"
# Version, last generation, last queue number.
ROOT: Final = struct.Struct(">IQQ")

PLACE: Final = struct.Struct(">IQ")
_TURN: Final = struct.Struct(">QQ")
_GENERATION: Final = struct.Struct(">Q")
_STATUS: Final = struct.Struct(">BHHQQQQQ")

# Offset after frontier and segment in a key of the tables s, b, p and k.
PLACE_END: Final = 1 + PLACE.size
MEMBER_BYTES: Final = PLACE.size + HASH_BYTES


class Status(NamedTuple):
    """Mutable part of a seed; times in ms, ``turn`` is the number of its queue entry."""

    state: int
    retry: int
    max_retry: int
    generation: int
    added_at: int
    changed_at: int
    due: int
    turn: int


class Grant(msgspec.Struct):
    """Lease. ``members``: frontier, segment and hash of each seed, concatenated.

    A member is leased if its status has this generation. ``left``: number of leased members,
    recounted at each start. ``call``: see ``SeedStore.lease``.
    """

    frontier: int
    owner: str
    deadline: int
    members: bytes
    left: int = 0
    call: str = ""

    def keys(self) -> list[bytes]:
        """Return frontier, segment and hash of each member."""
        starts = range(0, len(self.members), MEMBER_BYTES)
        return [self.members[start : start + MEMBER_BYTES] for start in starts]


class SegmentRecord(msgspec.Struct):
    """Counts of a segment. ``mark``: number of its newest key; ``size``: bytes of its seeds."""

    books: SegmentCounts
    mark: int = 0
    size: int = 0

    def copy(self) -> SegmentRecord:
        """Return an independent copy."""
        return SegmentRecord(self.books.plus(SegmentCounts()), self.mark, self.size)


pack_status = _STATUS.pack
place = PLACE.pack


def read_status(raw: bytes) -> Status:
    """Decode a status of table ``s``."""
    return Status._make(_STATUS.unpack(raw))


def pending_key(where: bytes, due: int, turn: int) -> bytes:
    """Return a key of table ``p``. ``where``: packed frontier and segment."""
    return b"p" + where + _TURN.pack(due, turn)


def due_until(where: bytes, now: int) -> bytes:
    """Return the upper bound of keys due by ``now``."""
    return b"p" + where + _TURN.pack(now + 1, 0)


def due_of(key: bytes) -> int:
    """Return the due time in a key of table ``p``."""
    due: int = _TURN.unpack_from(key, PLACE_END)[0]
    return due


def grant_key(generation: int) -> bytes:
    """Return a key of table ``g``."""
    return b"g" + _GENERATION.pack(generation)


def generation_of(key: bytes) -> int:
    """Return the generation in a key of table ``g``."""
    generation: int = _GENERATION.unpack_from(key, 1)[0]
    return generation


def beyond(prefix: bytes) -> bytes:
    """Return the smallest key above all keys that begin with ``prefix``."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1])
