"""What becomes of planned times: which are started, which come too late. No database here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Final

# Up to this age a planned time counts as kept.
ON_TIME: Final = timedelta(seconds=60)
# The newest one is started up to this age whatever the misfire policy says: a daemon that is
# started again, or an upgrade, is no outage.
LATE: Final = timedelta(seconds=300)
# Of an outage so many are caught up at most, the newest ones.
CATCH_UP_LIMIT: Final = 100


class DueTimeVerdict(Enum):
    """What is to be done with a planned time."""

    START = "started"
    START_LATE = "late"
    CATCH_UP = "caught_up"
    MISS = "missed"
    # Missed as well, because a newer one is started in its place.
    REPLACED = "replaced"
    # Missed as well, because more are caught up than may be.
    TOO_MANY = "too_many"


@dataclass(frozen=True, slots=True)
class DueTimeDecision:
    """One planned time."""

    planned_at: datetime
    verdict: DueTimeVerdict


def decide(
    times: Sequence[datetime], *, now: datetime, policy: str, newer_follow: bool
) -> list[DueTimeDecision]:
    """What to do with each of ``times``, oldest first, all of them due.

    ``policy``: ``skip``, ``once`` or ``all``. ``newer_follow``: at least ``CATCH_UP_LIMIT`` more
    are due after these, so that none of these can be the last.
    """
    if newer_follow:
        missed = {
            "skip": DueTimeVerdict.MISS,
            "once": DueTimeVerdict.REPLACED,
            "all": DueTimeVerdict.TOO_MANY,
        }[policy]
        return [DueTimeDecision(each, missed) for each in times]
    last = len(times) - 1
    return [
        DueTimeDecision(each, _verdict(now - each, policy, older_than=last - index))
        for index, each in enumerate(times)
    ]


def _verdict(age: timedelta, policy: str, *, older_than: int) -> DueTimeVerdict:
    """``older_than``: how many of the due times are newer."""
    if age <= ON_TIME:
        return DueTimeVerdict.START
    if age <= LATE and not older_than:
        return DueTimeVerdict.START_LATE
    if policy == "skip":
        return DueTimeVerdict.MISS
    if policy == "once":
        return DueTimeVerdict.REPLACED if older_than else DueTimeVerdict.CATCH_UP
    return DueTimeVerdict.CATCH_UP if older_than < CATCH_UP_LIMIT else DueTimeVerdict.TOO_MANY
