"""Scores and selection of resources (seed S3.21): score, rotation zone, cool-downs.

No Django: the database selects by the same formula, and tests compare it with ``choose``.

Two rules keep every resource in use. Among equal scores the longest unused comes first. And a day
without use weighs as much as the whole range of scores: the worst resource is tried again a day
after the best ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from apps.seeds.engine.errors import InvalidFrontierSetting

# Uses that a score remembers: each new one moves it by a tenth of the way.
FACTOR: Final = 10
BEST: Final = 1.0
WORST: Final = 0.0
ROTATION_PERCENT: Final = 70
LEASE_SECONDS: Final = 4 * 3600
MAX_COOL_DOWN_SECONDS: Final = 24 * 3600
# How long the worst must have rested more than the best to come before it.
FORGIVING_SECONDS: Final = 24 * 3600
# The rank of what was never used: before every other, and a number that every database stores.
NEVER_USED: Final = -1e15


@dataclass(frozen=True, slots=True)
class ScoringRules:
    """How pools judge. Raises ``InvalidFrontierSetting`` for what no pool could work by.

    ``ban_after``: failures in a row; 0 is never.
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
    """Score of one resource. ``failures``: in a row."""

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
    """A free resource. ``used_at``: when it was last in use, seconds since 1970; None is never."""

    name: int
    score: float = BEST
    used_at: float | None = None


def next_score(score: float, *, succeeded: bool) -> float:
    """The moving average after one more use, 0 to 1."""
    target = BEST if succeeded else WORST
    moved = score + (target - score) / FACTOR
    return min(BEST, max(WORST, moved))


def cool_down(failures: int, first_seconds: float) -> float:
    """Seconds to leave a resource alone after ``failures`` in a row: doubled by each, up to a day.

    A pool whose first cool-down is longer than a day keeps that one.
    """
    if failures <= 0 or first_seconds <= 0:
        return 0.0
    limit = max(MAX_COOL_DOWN_SECONDS, first_seconds)
    # More doublings than these exceed any limit, and would exceed a float.
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
    """The place in the pool: the smaller, the better; ``NEVER_USED`` for that.

    The moment of the last use, put back by up to a day for a good score. It does not change while
    a resource rests, so that a database can keep it in an index.
    """
    if used_at is None:
        return NEVER_USED
    return used_at - score * FORGIVING_SECONDS


def zone_size(free: int, percent: int) -> int:
    """How many of ``free`` resources take turns: at least one, where there is any."""
    if not 1 <= percent <= 100:
        raise InvalidFrontierSetting(f"a zone of {percent} % is none; 1 to 100")
    return -(-free * percent // 100)


def choose(free: Sequence[Candidate], percent: int = ROTATION_PERCENT) -> Candidate | None:
    """Return the longest unused of the best ``percent`` of free resources; None without any."""
    best = sorted(free, key=lambda each: (rank(each.score, each.used_at), each.name))
    zone = best[: zone_size(len(free), percent)]
    return min(zone, key=lambda each: (_used(each), each.name), default=None)


def _used(each: Candidate) -> float:
    return NEVER_USED if each.used_at is None else each.used_at
