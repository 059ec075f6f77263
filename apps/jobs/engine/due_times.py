"""Decision which due times are started and which are missed. Plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Final

# A start up to this age counts as on time.
ON_TIME: Final = timedelta(seconds=60)
# The newest due time is started up to this age under every misfire policy: the restart of a daemon,
# or an upgrade, does not count as an outage.
LATE: Final = timedelta(seconds=300)
# Limit of times that are caught up after an outage; the newest are started.
CATCH_UP_LIMIT: Final = 100


class DueTimeVerdict(Enum):
    """Decision on a due time."""

    START = "started"
    START_LATE = "late"
    CATCH_UP = "caught_up"
    MISS = "missed"
    # Missed: a newer time is started instead.
    REPLACED = "replaced"
    # Missed: beyond ``CATCH_UP_LIMIT``.
    TOO_MANY = "too_many"


@dataclass(frozen=True, slots=True)
class DueTimeDecision:
    """Due time with the decision on it."""

    planned_at: datetime
    verdict: DueTimeVerdict


def decide(
    times: Sequence[datetime], *, now: datetime, policy: str, newer_follow: bool
) -> list[DueTimeDecision]:
    """Decide on each of ``times``, which are due and sorted oldest first.

    ``policy``: ``skip``, ``once`` or ``all``. ``newer_follow``: at least ``CATCH_UP_LIMIT`` newer
    times are due besides these, so that none of these is the last.
    """
    if newer_follow:
        missed = {
            "skip": DueTimeVerdict.MISS,
            "once": DueTimeVerdict.REPLACED,
            "all": DueTimeVerdict.TOO_MANY,
        }[policy]
        return [DueTimeDecision(time, missed) for time in times]
    last = len(times) - 1
    return [
        DueTimeDecision(time, _verdict(now - time, policy, older_than=last - index))
        for index, time in enumerate(times)
    ]


def _verdict(age: timedelta, policy: str, *, older_than: int) -> DueTimeVerdict:
    """Decide on one time. ``older_than``: number of due times that are newer."""
    if age <= ON_TIME:
        return DueTimeVerdict.START
    if age <= LATE and not older_than:
        return DueTimeVerdict.START_LATE
    if policy == "skip":
        return DueTimeVerdict.MISS
    if policy == "once":
        return DueTimeVerdict.REPLACED if older_than else DueTimeVerdict.CATCH_UP
    return DueTimeVerdict.CATCH_UP if older_than < CATCH_UP_LIMIT else DueTimeVerdict.TOO_MANY
