"""What happened to an item, step by step: lines of JSON that a row only ever adds to.

A chain that grows too long is cut in its middle, and the cut says how many are gone: the
beginning says where an item came from, the end why it stands where it stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

import msgspec

# More steps than these are cut down to the first and the last of them.
MOST: Final = 120
HEAD: Final = 20
TAIL: Final = 60
DETAIL_CHARACTERS: Final = 300

# No database takes these in a text: character 0, and halves of a pair.
_UNWRITABLE: Final = re.compile("[\x00\ud800-\udfff]")


class StepKind(StrEnum):
    """What a step says."""

    RECEIVED = "received"
    # The inbound brought it again; it was known.
    REDELIVERED = "redelivered"
    # Its router did not finish it within its lease, and may have sent it.
    TAKEN_OVER = "taken_over"
    CONVERTED = "converted"
    MATCHED = "matched"
    NOT_MATCHED = "not_matched"
    PARKED = "parked"
    DISPATCHED = "dispatched"
    RESULT = "result"
    # A result that came after the end: noted, counted, and of no consequence.
    LATE_RESULT = "late_result"
    OVERDUE = "overdue"
    RETRIED = "retried"
    ENDED = "ended"
    CANCELLED = "cancelled"
    RESUBMITTED = "resubmitted"
    # ``detail`` is how many steps stood here.
    CUT = "cut"


class Step(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One step. ``at_ms`` is milliseconds since 1970 (UTC); unknown kinds are kept as they are."""

    at_ms: int
    kind: str
    outbound: str = ""
    detail: str = ""

    @property
    def at(self) -> datetime:
        """When, aware."""
        return datetime.fromtimestamp(self.at_ms / 1000, UTC)


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Step)


def step(at: datetime, kind: str, outbound: str = "", detail: str = "") -> Step:
    """A step that any database takes, however strange the text of a third party is."""
    return Step(round(at.timestamp() * 1000), kind, outbound, writable(detail, DETAIL_CHARACTERS))


def writable(text: str, most: int) -> str:
    """``text`` cut to ``most`` characters, without those that no database takes."""
    return _UNWRITABLE.sub("\ufffd", text[:most]) if text else text


def write_steps(steps: Iterable[Step]) -> str:
    """A line of JSON each, every one ended: what is appended to a row."""
    return _encoder.encode_lines(steps).decode()


def read_steps(text: str) -> list[Step]:
    """The steps of a row."""
    return _decoder.decode_lines(text)


def cut(steps: Sequence[Step]) -> list[Step]:
    """The steps, or the first and the last of them around a cut that counts the others."""
    if len(steps) <= MOST:
        return list(steps)
    middle = steps[HEAD:-TAIL]
    gone = sum(int(each.detail) if each.kind == StepKind.CUT else 1 for each in middle)
    return [*steps[:HEAD], Step(middle[0].at_ms, StepKind.CUT, "", str(gone)), *steps[-TAIL:]]
