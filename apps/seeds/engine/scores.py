"""Scores and selection of resources: score, rotation zone, cool-downs.

Plain Python: the database selects by the same formula, and tests compare it with ``choose``.

Two rules keep every resource in use. Of equal scores the longest unused comes first. A day without
use weighs as much as the whole range of scores, so the worst resource is tried again a day after
the best ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from apps.seeds.engine.errors import InvalidFrontierSetting

# Window of the moving average: each use moves the score by a tenth of the distance.
FACTOR: Final = 10
BEST: Final = 1.0
WORST: Final = 0.0
ROTATION_PERCENT: Final = 70
LEASE_SECONDS: Final = 4 * 3600
MAX_COOL_DOWN_SECONDS: Final = 24 * 3600
# The worst resource comes before the best one after this much more idle time, in seconds.
FORGIVING_SECONDS: Final = 24 * 3600
# Rank of an unused resource: before all others, and a number that every database can store.
NEVER_USED: Final = -1e15


@dataclass(frozen=True, slots=True)
class ScoringRules:
    """Scoring rules of a pool. Raises ``InvalidFrontierSetting`` for values out of range.

    ``ban_after``: consecutive failures that cause a ban; 0 disables bans.
    """

    rest_seconds: float = 0.0
    cool_down_seconds: float = 60.0
    ban_after: int = 0

    def __post_init__(self) -> None:
        if self.rest_seconds < 0 or self.cool_down_seconds < 0:
            raise InvalidFrontierSetting("a rest or a cool-down cannot be shorter than nothing")
        if self.ban_after < 0:
            raise InvalidFrontierSetting("the number of failures before a ban is 0 or more")


@dataclass(frozen=True, slots=True)
class ResourceScore:
    """Score of one resource. ``failures``: consecutive ones."""

    score: float = BEST
    failures: int = 0


@dataclass(frozen=True, slots=True)
class UseResult:
    """Effect of a use: the resource is free again after ``pause_seconds``."""

    standing: ResourceScore
    pause_seconds: float
    banned: bool = False


@dataclass(frozen=True, slots=True)
class Candidate:
    """Free resource. ``used_at``: last use in seconds since 1970; None if never used."""

    name: int
    score: float = BEST
    used_at: float | None = None


def next_score(score: float, *, succeeded: bool) -> float:
    """Return the moving average (0 to 1) after one more use."""
    target = BEST if succeeded else WORST
    moved = score + (target - score) / FACTOR
    return min(BEST, max(WORST, moved))


def cool_down(failures: int, first_seconds: float) -> float:
    """Return the cool-down in seconds after consecutive ``failures``: doubled by each, up to a day.

    A first cool-down of more than a day is not limited.
    """
    if failures <= 0 or first_seconds <= 0:
        return 0.0
    limit = max(MAX_COOL_DOWN_SECONDS, first_seconds)
    # More doublings exceed any limit, and would overflow a float.
    return min(limit, first_seconds * 2.0 ** min(failures - 1, 64))


def judge(standing: ResourceScore, rules: ScoringRules, *, succeeded: bool) -> UseResult:
    """Return the effect of one use on a resource."""
    score = next_score(standing.score, succeeded=succeeded)
    if succeeded:
        return UseResult(ResourceScore(score, 0), rules.rest_seconds)
    failures = standing.failures + 1
    pause = max(rules.rest_seconds, cool_down(failures, rules.cool_down_seconds))
    banned = bool(rules.ban_after) and failures >= rules.ban_after
    return UseResult(ResourceScore(score, failures), pause, banned)


def rank(score: float, used_at: float | None) -> float:
    """Return the sort key of a resource in its pool, smallest first; ``NEVER_USED`` if it has no
    use.

    The time of the last use minus up to a day for a good score. It is constant while a resource is
    unused, so that a database can index it.
    """
    if used_at is None:
        return NEVER_USED
    return used_at - score * FORGIVING_SECONDS


def zone_size(free: int, percent: int) -> int:
    """Return how many of ``free`` resources take turns: at least one, if any is free."""
    if not 1 <= percent <= 100:
        raise InvalidFrontierSetting(f"a zone of {percent} % is none; 1 to 100")
    return -(-free * percent // 100)


def choose(free: Sequence[Candidate], percent: int = ROTATION_PERCENT) -> Candidate | None:
    """Return the longest unused of the best ``percent`` of free resources; None if none is free."""
    best = sorted(
        free, key=lambda candidate: (rank(candidate.score, candidate.used_at), candidate.name)
    )
    zone = best[: zone_size(len(free), percent)]
    return min(zone, key=lambda candidate: (_used(candidate), candidate.name), default=None)


def _used(candidate: Candidate) -> float:
    return NEVER_USED if candidate.used_at is None else candidate.used_at
