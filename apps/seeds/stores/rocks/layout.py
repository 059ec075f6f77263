"""How seeds lie in RocksDB: one sorted map, a letter for each table.

| Table | Key after the letter | Value |
|---|---|---|
| ``s`` status | frontier, segment, hash | ``STATUS`` |
| ``b`` body | frontier, segment, hash | what of a seed never changes |
| ``p`` pending | frontier, segment, due, number | hash, status |
| ``g`` grant (a lease) | generation | ``Grant`` |
| ``k`` books | frontier, segment | ``SegmentRecord`` |
| ``x`` the store itself | nothing | ``ROOT`` |

Numbers are big-endian, so that keys sort like them. A status is small and changes, a body may be
large and never does; duplicates are told by the status alone. A pending entry has the status once
more, so that handing out reads no more than entry and body.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import msgspec

from apps.seeds.engine.keys import HASH_BYTES
from apps.seeds.stores.base import SegmentCounts

VERSION: Final = 1
ROOT_KEY: Final = b"x"
# Version, last generation, last number of an entry in a queue.
ROOT: Final = struct.Struct(">IQQ")

PLACE: Final = struct.Struct(">IQ")
_TURN: Final = struct.Struct(">QQ")
_GENERATION: Final = struct.Struct(">Q")
_STATUS: Final = struct.Struct(">BHHQQQQQ")

# Where frontier and segment end in a key of the tables s, b, p and k.
PLACE_END: Final = 1 + PLACE.size
MEMBER_BYTES: Final = PLACE.size + HASH_BYTES


class Status(NamedTuple):
    """Mutable part of a seed; times in ms, ``turn`` numbers its queue entry."""

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

    A member is leased while its status says so. ``left``: how many are, counted again at each
    start. ``call``: see the port.
    """

    frontier: int
    owner: str
    deadline: int
    members: bytes
    left: int = 0
    call: str = ""

    def keys(self) -> list[bytes]:
        """Frontier, segment and hash of each member."""
        starts = range(0, len(self.members), MEMBER_BYTES)
        return [self.members[start : start + MEMBER_BYTES] for start in starts]


class SegmentRecord(msgspec.Struct):
    """Books of a segment. ``mark``: number of its newest key; ``size``: bytes of its seeds."""

    books: SegmentCounts
    mark: int = 0
    size: int = 0

    def copy(self) -> SegmentRecord:
        """One that can be written on."""
        return SegmentRecord(self.books.plus(SegmentCounts()), self.mark, self.size)


pack_status = _STATUS.pack
place = PLACE.pack


def read_status(raw: bytes) -> Status:
    """A status from the table ``s``."""
    return Status._make(_STATUS.unpack(raw))


def pending_key(where: bytes, due: int, turn: int) -> bytes:
    """``where``: frontier and segment, packed."""
    return b"p" + where + _TURN.pack(due, turn)


def due_until(where: bytes, now: int) -> bytes:
    """Return the upper bound of keys due by ``now``."""
    return b"p" + where + _TURN.pack(now + 1, 0)


def due_of(key: bytes) -> int:
    """The due time in a key of the table ``p``."""
    due: int = _TURN.unpack_from(key, PLACE_END)[0]
    return due


def grant_key(generation: int) -> bytes:
    """In the table ``g``."""
    return b"g" + _GENERATION.pack(generation)


def generation_of(key: bytes) -> int:
    """The generation in a key of the table ``g``."""
    generation: int = _GENERATION.unpack_from(key, 1)[0]
    return generation


def beyond(prefix: bytes) -> bytes:
    """The smallest key above all that begin with ``prefix``."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1])
