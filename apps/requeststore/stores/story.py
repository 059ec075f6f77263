"""History of a request as text to which SQL can append.

Each step is a JSON array and a comma: ``[1700000000000,"taken","fetcher-1",""],``, readable with
any database client.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from apps.requeststore.engine.limits import MAX_STEPS, MAX_TEXT
from apps.requeststore.stores.base import HistoryStep, HistoryStepKind, StoredRequest

# Histories are shortened when a request is queued or leased; two more steps may follow.
_ROOM: Final = MAX_STEPS - 2
# Size of the shortest step, ``[0,"taken","",""],``: a shorter text cannot hold too many steps.
LONG_STORY: Final = _ROOM * 18
# Number of first steps kept; the rest are the last ones.
_FIRST: Final = 20

_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(list[HistoryStep])


def written(at: int, kind: HistoryStepKind, by: str, text: str = "") -> str:
    """Return one step as text. Its ``text`` becomes one line and is cut."""
    line = " ".join(text[: 2 * MAX_TEXT].split())[:MAX_TEXT] if text else ""
    return _encoder.encode((at, kind, by, line)).decode() + ","


def story_of(steps: list[HistoryStep]) -> str:
    """Return a whole history, shortened."""
    return "".join(written(step.at, step.kind, step.by, step.text) for step in shortened(steps))


def read(story: str) -> list[HistoryStep]:
    """Parse the steps in order."""
    return _decoder.decode(f"[{story[:-1]}]") if story else []


def shortened(steps: list[HistoryStep]) -> list[HistoryStep]:
    """Return the first and last steps of a long history."""
    return steps if len(steps) <= _ROOM else [*steps[:_FIRST], *steps[_FIRST - _ROOM :]]


def shorter(story: str) -> str | None:
    """Return the replacement of a text of ``LONG_STORY`` or more bytes; None: keep it."""
    steps = read(story)
    return story_of(steps) if len(steps) > _ROOM else None


def whole_row(request: StoredRequest, step: str) -> tuple[Any, ...]:
    """Return all columns of a request in order, with this step added."""
    return (
        request.id,
        request.biz,
        request.ts,
        request.flag,
        request.priority,
        request.owner,
        request.deadline,
        request.tries,
        request.queued_at,
        request.finished_at,
        request.result,
        story_of(request.steps) + step,
        request.data,
    )
