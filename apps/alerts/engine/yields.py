"""What is usual for a job, and what of a run is not: by the job's own past, without Django.

Usual is the median of the past, and how far runs lie from it the median of their distances (MAD),
so that a few odd runs among many change neither. What is found is both large, by a limit that
people set, and beyond the noise, three times the usual distance: a job whose yield swings wildly
raises no alarm for one more swing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from itertools import pairwise
from statistics import median
from typing import Any, Final

# Fewer runs than this say nothing about what is usual.
LEAST_RUNS: Final = 5
# Of the same weekday at least so many different days, or all days are taken.
LEAST_DAYS: Final = 3
# So many of the newest runs, when all days are taken.
MOST_RUNS: Final = 60
# In a run of fewer items no share is looked at.
LEAST_ITEMS: Final = 5
LEAST_REQUESTS: Final = 5
NOISE: Final = 3.0
# Makes a MAD comparable to a standard deviation.
_MAD: Final = 1.4826
MOST_FIELDS: Final = 20
# Nobody is told sooner that a job brings nothing any more.
LEAST_STALE_SECONDS: Final = 600.0


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a change must be; None: not looked at.

    ``drop_below`` and ``rise_above`` are times the usual number of items; ``coverage_fall`` and
    ``failures_rise`` are shares of 1; ``stale_times`` is times the usual interval.
    """

    drop_below: float | None = 0.5
    rise_above: float | None = 5.0
    coverage_fall: float | None = 0.3
    failures_rise: float | None = 0.3
    stale_times: float | None = 3.0


@dataclass(frozen=True, slots=True)
class Brought:
    """What one run has brought. ``day``: when it ended, by the job's own calendar.

    ``fields``: in how many items each had a value; None where that is not looked at.
    """

    day: date
    items: int
    success: int
    failed: int
    fields: Mapping[str, int] | None = None

    @property
    def failed_share(self) -> float | None:
        """Of the requests that ended; None where there were too few."""
        done = self.success + self.failed
        return self.failed / done if done >= LEAST_REQUESTS else None

    def coverage(self, name: str) -> float:
        """In which share of the items the field had a value."""
        return min(1.0, (self.fields or {}).get(name, 0) / self.items) if self.items else 0.0


@dataclass(frozen=True, slots=True)
class Usual:
    """What is to be expected: ``low`` to ``high`` is within the noise around ``middle``.

    ``weekday``: by runs of the same weekday alone. ``fields``: the usual share of each.
    """

    low: float
    middle: float
    high: float
    runs: int
    weekday: bool
    fields: Mapping[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """To keep, and for REST."""
        return {
            "low": round(self.low, 1),
            "middle": round(self.middle, 1),
            "high": round(self.high, 1),
            "runs": self.runs,
            "weekday": self.weekday,
            "fields": {name: round(share, 4) for name, share in self.fields.items()},
        }


@dataclass(frozen=True, slots=True)
class Judgement:
    """``usual`` None: the past is too short. ``findings``: what is unusual, one of a kind."""

    usual: Usual | None
    findings: list[dict[str, Any]]


def judge(run: Brought, past: Sequence[Brought], limits: Limits) -> Judgement:
    """Compare a run with those before it, newest first."""
    chosen, weekday = _comparable(run.day, past)
    findings = []
    usual = None
    if len(chosen) >= LEAST_RUNS:
        counts = [one.items for one in chosen]
        middle, spread = _centre(counts)
        # Counts have a noise of their own, however steady they were so far.
        spread = max(spread, math.sqrt(middle))
        fields = usual_coverage(past)
        usual = Usual(
            max(0.0, middle - NOISE * spread),
            middle,
            middle + NOISE * spread,
            len(chosen),
            weekday,
            fields,
        )
        never_nothing = min(counts) > 0
        if not _like_its_weekday(run, past, weekday=weekday, limits=limits):
            findings += _of_items(run, usual, never_nothing=never_nothing, limits=limits)
        findings += _of_coverage(run, past, fields, limits)
    findings += _of_failures(run, past, limits)
    return Judgement(usual, findings)


def usual_coverage(past: Iterable[Brought]) -> dict[str, float]:
    """In which share of a run's items each field usually has a value; {} when too few say so."""
    told = [one for one in past if one.fields is not None and one.items >= LEAST_ITEMS]
    if len(told) < LEAST_RUNS:
        return {}
    names = sorted({name for one in told for name in one.fields or ()})
    return {name: median(one.coverage(name) for one in told) for name in names}


def usual_interval(ends: Sequence[datetime]) -> tuple[timedelta, timedelta] | None:
    """The usual and the longest time between good runs, newest first; None: too few."""
    gaps = [(later - earlier).total_seconds() for later, earlier in pairwise(ends)][:MOST_RUNS]
    if len(gaps) < LEAST_RUNS:
        return None
    return timedelta(seconds=median(gaps)), timedelta(seconds=max(gaps))


def _comparable(day: date, past: Sequence[Brought]) -> tuple[Sequence[Brought], bool]:
    """Runs of the same weekday if there are enough, on enough days; else the newest of all."""
    same = [one for one in past if one.day.weekday() == day.weekday()]
    if len(same) >= LEAST_RUNS and len({one.day for one in same} - {day}) >= LEAST_DAYS:
        return same[:MOST_RUNS], True
    return past[:MOST_RUNS], False


def _like_its_weekday(
    run: Brought, past: Sequence[Brought], *, weekday: bool, limits: Limits
) -> bool:
    """Compared with all days: the few earlier runs of its weekday brought about as much.

    Else every Saturday of a new job would be a drop for five weeks. On the first one, with
    nothing to go by, the difference must be twice as large; and in a job's first week there is no
    telling how its Saturdays are.
    """
    if weekday or run.items == 0:
        return False
    same = [one.items for one in past if one.day.weekday() == run.day.weekday()]
    others = [one.items for one in past[:MOST_RUNS]]
    low, high = limits.drop_below or 0.0, limits.rise_above or math.inf
    middle = median(same or others)
    if not same:
        if run.day - min(one.day for one in past) < timedelta(days=7):
            return True
        low, high = low / 2, high * 2
    return low * middle <= run.items <= high * middle


def _centre(values: Sequence[float]) -> tuple[float, float]:
    middle = float(median(values))
    return middle, _MAD * median(abs(value - middle) for value in values)


def _of_items(
    run: Brought, usual: Usual, *, never_nothing: bool, limits: Limits
) -> list[dict[str, Any]]:
    told = {"items": run.items, "usual": round(usual.middle), "runs": usual.runs}
    told |= {"weekday": usual.weekday}
    low, high = limits.drop_below, limits.rise_above
    # Three items a run are too few for noise to tell anything, but never were they none.
    gone = run.items == 0 and never_nothing
    if low is not None and (gone or (run.items < low * usual.middle and run.items < usual.low)):
        return [{"kind": "drop", **told}]
    # Where nothing is usual, so is something now and then.
    too_many = usual.middle > 0 and run.items > usual.high
    if high is not None and too_many and run.items > high * usual.middle:
        return [{"kind": "rise", **told}]
    return []


def _of_coverage(
    run: Brought, past: Sequence[Brought], usual: Mapping[str, float], limits: Limits
) -> list[dict[str, Any]]:
    if limits.coverage_fall is None or run.fields is None or run.items < LEAST_ITEMS:
        return []
    told = [one for one in past if one.fields is not None and one.items >= LEAST_ITEMS]
    fallen = []
    for name, share in usual.items():
        fall = share - run.coverage(name)
        if fall < limits.coverage_fall:
            continue
        _middle, spread = _centre([one.coverage(name) for one in told])
        if fall >= NOISE * max(spread, math.sqrt(share * (1 - share) / run.items)):
            fallen.append((fall, name, run.coverage(name), share))
    if not fallen:
        return []
    fallen.sort(key=lambda one: (-one[0], one[1]))
    fields = [
        {"name": name, "share": round(now, 4), "usual": round(share, 4)}
        for _fall, name, now, share in fallen[:MOST_FIELDS]
    ]
    return [{"kind": "coverage", "items": run.items, "count": len(fallen), "fields": fields}]


def _of_failures(run: Brought, past: Sequence[Brought], limits: Limits) -> list[dict[str, Any]]:
    if limits.failures_rise is None:
        return []
    told = {"failed": run.failed, "done": run.success + run.failed}
    share = run.failed_share
    shares = [one.failed_share for one in past[:MOST_RUNS]]
    known = [one for one in shares if one is not None]
    if share is None:
        # Three requests and three failures: no matter of shares.
        all_failed = run.failed > 0 and run.success == 0
        return [{"kind": "failures", **told, "share": 1.0, "usual": None}] if all_failed else []
    if len(known) < LEAST_RUNS:
        found = share == 1.0
        usual = None
    else:
        middle, spread = _centre(known)
        noise = NOISE * max(spread, math.sqrt(middle * (1 - middle) / (run.success + run.failed)))
        found = share - middle >= max(limits.failures_rise, noise)
        usual = round(middle, 4)
    return [{"kind": "failures", **told, "share": round(share, 4), "usual": usual}] if found else []
