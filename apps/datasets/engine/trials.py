"""Judgement of an image by its run on the recorded pages of an earlier run."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

_WHOLE: Final = 100.0


class TrialLimit(StrEnum):
    """What a job limits in a trial."""

    LOST = "lost"
    CHANGED = "changed"
    FAILED = "failed"
    ENDED = "ended"


class TrialExcess(msgspec.Struct, frozen=True):
    """A limit that a trial exceeds; both numbers are percent, 0 for ``ENDED``."""

    limit: TrialLimit
    found: float
    allowed: float


class NewFailure(msgspec.Struct, frozen=True):
    """A group of failures that the recorded run does not have; ``url`` is that of one of them."""

    error: str
    count: int
    url: str


class TrialLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a job, in percent."""

    lost: float
    changed: float
    failed: float


class TrialResult(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of the recorded run and of the trial, each as ``(recorded, trial)``.

    ``added`` to ``equal``: items by key; all 0 where ``keyed`` is false. ``seconds``: duration of
    the runs. ``failed`` counts requests.
    """

    items: tuple[int, int]
    requests: tuple[int, int]
    failed: tuple[int, int]
    seconds: tuple[float, float]
    keyed: bool = False
    added: int = 0
    removed: int = 0
    changed: int = 0
    equal: int = 0
    succeeded: bool = True
    # Exceptions of callbacks, the most frequent first.
    exceptions: tuple[NewFailure, ...] = ()
    excesses: tuple[TrialExcess, ...] = ()


def judge(result: TrialResult, limits: TrialLimits) -> TrialResult:
    """Return the result with the limits that it exceeds.

    Requests that failed in the recorded run, too, do not count against the image.
    """
    known = result.removed + result.changed + result.equal
    if result.keyed:
        lost, changed = _percent(result.removed, known), _percent(result.changed, known)
    else:
        recorded, found = result.items
        lost, changed = _percent(max(0, recorded - found), recorded), 0.0
    before, after = (
        _percent(failed, total)
        for failed, total in zip(result.failed, result.requests, strict=True)
    )
    measured = (
        (TrialLimit.LOST, lost, limits.lost),
        (TrialLimit.CHANGED, changed, limits.changed),
        (TrialLimit.FAILED, after, max(before, limits.failed)),
    )
    excesses = [
        TrialExcess(limit, round(found, 2), round(allowed, 2))
        for limit, found, allowed in measured
        if found > allowed
    ]
    if not result.succeeded:
        excesses.insert(0, TrialExcess(TrialLimit.ENDED, 0.0, 0.0))
    return msgspec.structs.replace(result, excesses=tuple(excesses))


def _percent(part: int, whole: int) -> float:
    return _WHOLE * part / whole if whole else 0.0
