"""History of an item: append-only JSON Lines in its database row.

A history that grows too long loses its middle part, and a ``CUT`` step counts the removed steps:
the beginning shows the origin of the item, the end explains its current state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

import msgspec

from yardkit.names import UNSTORABLE

# A history with more than MOST steps is reduced to the first HEAD and the last TAIL steps.
MOST: Final = 120
HEAD: Final = 20
TAIL: Final = 60
DETAIL_CHARACTERS: Final = 300

# Databases reject NUL and lone surrogates in a text.


class StepKind(StrEnum):
    """Kind of a step."""

    RECEIVED = "received"
    # The inbound delivered an item again that the ledger already had.
    REDELIVERED = "redelivered"
    # The lease of another router expired; that router may have sent the item.
    TAKEN_OVER = "taken_over"
    CONVERTED = "converted"
    MATCHED = "matched"
    NOT_MATCHED = "not_matched"
    PARKED = "parked"
    DISPATCHED = "dispatched"
    RESULT = "result"
    # A result that arrived after the final state: recorded and counted, but without effect.
    LATE_RESULT = "late_result"
    OVERDUE = "overdue"
    RETRIED = "retried"
    ENDED = "ended"
    CANCELLED = "cancelled"
    RESUBMITTED = "resubmitted"
    # ``detail`` is the number of removed steps.
    CUT = "cut"


class Step(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Step of a history. ``at_ms`` is in milliseconds since the Unix epoch.

    ``kind`` is a plain text, so that kinds of a newer version are preserved.
    """

    at_ms: int
    kind: str
    outbound: str = ""
    detail: str = ""

    @property
    def at(self) -> datetime:
        """Time of the step, aware (UTC)."""
        return datetime.fromtimestamp(self.at_ms / 1000, UTC)


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Step)


def step(at: datetime, kind: str, outbound: str = "", detail: str = "") -> Step:
    """Create a step; ``detail`` is truncated and cleaned so that any database accepts it."""
    return Step(round(at.timestamp() * 1000), kind, outbound, writable(detail, DETAIL_CHARACTERS))


def writable(text: str, most: int) -> str:
    """Truncate a text to ``most`` characters and replace those that databases reject."""
    return UNSTORABLE.sub("\ufffd", text[:most]) if text else text


def write_steps(steps: Iterable[Step]) -> str:
    """Encode steps as JSON Lines, each with a line end, to be appended to a row."""
    return _encoder.encode_lines(steps).decode()


def read_steps(text: str) -> list[Step]:
    """Decode the steps of a row."""
    return _decoder.decode_lines(text)


def cut(steps: Sequence[Step]) -> list[Step]:
    """Return the steps; if there are more than ``MOST``, a ``CUT`` step replaces the middle."""
    if len(steps) <= MOST:
        return list(steps)
    middle = steps[HEAD:-TAIL]
    gone = sum(int(step.detail) if step.kind == StepKind.CUT else 1 for step in middle)
    return [*steps[:HEAD], Step(middle[0].at_ms, StepKind.CUT, "", str(gone)), *steps[-TAIL:]]
