"""Anomaly detection in the yield of a job's runs, based on the job's own history.

The baseline is the median of earlier runs with their median absolute deviation (MAD), so that a few
outliers change neither. An anomaly must exceed both the user's limit and three MADs: a volatile job
raises no alert for one more swing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from itertools import pairwise
from statistics import median
from typing import Any, Final

# Minimum number of runs for a baseline.
LEAST_RUNS: Final = 5
# Minimum number of different days for a baseline of one weekday; with fewer, all days are used.
LEAST_DAYS: Final = 3
# Number of newest runs used when all days are compared.
MOST_RUNS: Final = 60
# Minimum items of a run for shares to be compared.
LEAST_ITEMS: Final = 5
LEAST_REQUESTS: Final = 5
NOISE: Final = 3.0
# Scales a MAD to a standard deviation.
_MAD: Final = 1.4826
MOST_FIELDS: Final = 20
# Minimum time before a job counts as stale.
LEAST_STALE_SECONDS: Final = 600.0


@dataclass(frozen=True, slots=True)
class YieldLimits:
    """Limits of anomaly detection; None disables one.

    ``drop_below`` and ``rise_above`` are factors of the usual number of items; ``coverage_fall``
    and ``failures_rise`` are differences of shares (0 to 1); ``stale_times`` is a factor of the
    usual interval.
    """

    drop_below: float | None = 0.5
    rise_above: float | None = 5.0
    coverage_fall: float | None = 0.3
    failures_rise: float | None = 0.3
    stale_times: float | None = 3.0


@dataclass(frozen=True, slots=True)
class RunYield:
    """Yield of one run. ``day``: when it ended, in the job's time zone.

    ``fields``: number of items with a value, by field; None if not counted.
    """

    day: date
    items: int
    success: int
    failed: int
    fields: Mapping[str, int] | None = None

    @property
    def failed_share(self) -> float | None:
        """Return the share of failed requests; None with too few requests."""
        done = self.success + self.failed
        return self.failed / done if done >= LEAST_REQUESTS else None

    def coverage(self, name: str) -> float:
        """Return the share of items in which the field has a value."""
        return min(1.0, (self.fields or {}).get(name, 0) / self.items) if self.items else 0.0


@dataclass(frozen=True, slots=True)
class Baseline:
    """Expected number of items: ``low`` to ``high`` is the normal range around the median
    ``middle``.

    ``weekday``: computed from runs of the same weekday. ``fields``: usual coverage by field.
    """

    low: float
    middle: float
    high: float
    runs: int
    weekday: bool
    fields: Mapping[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return the rounded values for storage and REST."""
        return {
            "low": round(self.low, 1),
            "middle": round(self.middle, 1),
            "high": round(self.high, 1),
            "runs": self.runs,
            "weekday": self.weekday,
            "fields": {name: round(share, 4) for name, share in self.fields.items()},
        }


@dataclass(frozen=True, slots=True)
class YieldAssessment:
    """Result for one run. ``usual`` None: too few earlier runs. ``findings``: at most one per
    kind."""

    usual: Baseline | None
    findings: list[dict[str, Any]]


def assess(run: RunYield, past: Sequence[RunYield], limits: YieldLimits) -> YieldAssessment:
    """Compare a run with earlier ones, newest first."""
    chosen, weekday = _comparable(run.day, past)
    findings = []
    usual = None
    if len(chosen) >= LEAST_RUNS:
        counts = [past_run.items for past_run in chosen]
        middle, spread = _centre(counts)
        # Counts have Poisson noise, however steady they were so far.
        spread = max(spread, math.sqrt(middle))
        fields = usual_coverage(past)
        usual = Baseline(
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
    return YieldAssessment(usual, findings)


def usual_coverage(past: Iterable[RunYield]) -> dict[str, float]:
    """Return the median coverage of each field; {} with too few runs."""
    known = [
        past_run
        for past_run in past
        if past_run.fields is not None and past_run.items >= LEAST_ITEMS
    ]
    if len(known) < LEAST_RUNS:
        return {}
    names = sorted({name for known_run in known for name in known_run.fields or ()})
    return {name: median(known_run.coverage(name) for known_run in known) for name in names}


def usual_interval(ends: Sequence[datetime]) -> tuple[timedelta, timedelta] | None:
    """Return the median and longest time between good runs (newest first); None with too few."""
    gaps = [(later - earlier).total_seconds() for later, earlier in pairwise(ends)][:MOST_RUNS]
    if len(gaps) < LEAST_RUNS:
        return None
    return timedelta(seconds=median(gaps)), timedelta(seconds=max(gaps))


def _comparable(day: date, past: Sequence[RunYield]) -> tuple[Sequence[RunYield], bool]:
    """Return runs of the same weekday if there are enough, otherwise the newest of all days."""
    same = [past_run for past_run in past if past_run.day.weekday() == day.weekday()]
    if len(same) >= LEAST_RUNS and len({same_run.day for same_run in same} - {day}) >= LEAST_DAYS:
        return same[:MOST_RUNS], True
    return past[:MOST_RUNS], False


def _like_its_weekday(
    run: RunYield, past: Sequence[RunYield], *, weekday: bool, limits: YieldLimits
) -> bool:
    """Return whether the run resembles the few earlier runs of its weekday.

    Otherwise every Saturday of a new job would be a drop for five weeks. The first run of a weekday
    must differ twice as much; in a job's first week nothing is known of its weekdays.
    """
    if weekday or run.items == 0:
        return False
    same = [past_run.items for past_run in past if past_run.day.weekday() == run.day.weekday()]
    others = [past_run.items for past_run in past[:MOST_RUNS]]
    low, high = limits.drop_below or 0.0, limits.rise_above or math.inf
    middle = median(same or others)
    if not same:
        if run.day - min(past_run.day for past_run in past) < timedelta(days=7):
            return True
        low, high = low / 2, high * 2
    return low * middle <= run.items <= high * middle


def _centre(values: Sequence[float]) -> tuple[float, float]:
    middle = float(median(values))
    return middle, _MAD * median(abs(value - middle) for value in values)


def _of_items(
    run: RunYield, usual: Baseline, *, never_nothing: bool, limits: YieldLimits
) -> list[dict[str, Any]]:
    data = {"items": run.items, "usual": round(usual.middle), "runs": usual.runs}
    data |= {"weekday": usual.weekday}
    low, high = limits.drop_below, limits.rise_above
    # Few items per run are too noisy, but a drop to none is clear if no earlier run had none.
    gone = run.items == 0 and never_nothing
    if low is not None and (gone or (run.items < low * usual.middle and run.items < usual.low)):
        return [{"kind": "drop", **data}]
    # If the usual number is 0, a few items are normal.
    too_many = usual.middle > 0 and run.items > usual.high
    if high is not None and too_many and run.items > high * usual.middle:
        return [{"kind": "rise", **data}]
    return []


def _of_coverage(
    run: RunYield, past: Sequence[RunYield], usual: Mapping[str, float], limits: YieldLimits
) -> list[dict[str, Any]]:
    if limits.coverage_fall is None or run.fields is None or run.items < LEAST_ITEMS:
        return []
    known = [
        past_run
        for past_run in past
        if past_run.fields is not None and past_run.items >= LEAST_ITEMS
    ]
    fallen = []
    for name, share in usual.items():
        fall = share - run.coverage(name)
        if fall < limits.coverage_fall:
            continue
        _middle, spread = _centre([known_run.coverage(name) for known_run in known])
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


def _of_failures(
    run: RunYield, past: Sequence[RunYield], limits: YieldLimits
) -> list[dict[str, Any]]:
    if limits.failures_rise is None:
        return []
    data = {"failed": run.failed, "done": run.success + run.failed}
    share = run.failed_share
    shares = [past_run.failed_share for past_run in past[:MOST_RUNS]]
    known = [value for value in shares if value is not None]
    if share is None:
        # Too few requests for a share, but all of them failed.
        all_failed = run.failed > 0 and run.success == 0
        return [{"kind": "failures", **data, "share": 1.0, "usual": None}] if all_failed else []
    if len(known) < LEAST_RUNS:
        is_total = share == 1.0
        usual = None
    else:
        middle, spread = _centre(known)
        noise = NOISE * max(spread, math.sqrt(middle * (1 - middle) / (run.success + run.failed)))
        is_total = share - middle >= max(limits.failures_rise, noise)
        usual = round(middle, 4)
    return (
        [{"kind": "failures", **data, "share": round(share, 4), "usual": usual}] if is_total else []
    )
