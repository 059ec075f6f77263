"""Whether a series is in trouble, by its stored samples alone.

Nothing is remembered from one look to the next: another monitor that takes over, or one that was
killed, comes to the same verdict. Seconds of which there is no sample are unknown; they are neither
trouble nor its end.
"""

from __future__ import annotations

import enum
import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from apps.alerts.engine.rules import Recover, Rule, When

# Samples are taken every 5 s. What is older is not what is so now, and a pause that is longer is a
# time of which nothing is known.
GAP_SECONDS: Final = 30
# The mean of a sum is taken over at least so long: single seconds say little.
LEAST_MEAN: Final = 60
# Reports of a second have come when it is so old.
SETTLED: Final = 2
# A mean over a time of which less is known is none.
LEAST_HEARD: Final = 0.5
# Samples of seconds are read up to windows of so long, then those of minutes, then those of hours.
FINE_SECONDS: Final = 600
MINUTES_SECONDS: Final = 6 * 86_400


class Verdict(enum.StrEnum):
    """What is to be said of a series now."""

    OK = "ok"
    # Past its limit, and not yet for long enough.
    PENDING = "pending"
    FIRING = "firing"
    # Not past its limit, and not yet where it has recovered.
    BETWEEN = "between"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Line:
    """The samples of one series, oldest first: of a gauge its mean in the ``step`` seconds from
    ``times`` on, of a sum how many there were."""

    is_sum: bool
    step: int
    times: Sequence[int]
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class Judged:
    """``value``: the latest. ``since``: from when on, in Unix seconds, the verdict is so."""

    verdict: Verdict
    value: float | None = None
    since: float | None = None


UNKNOWN: Final = Judged(Verdict.UNKNOWN)


def window_of(rule: Rule) -> float:
    """How many seconds of samples ``judge`` reads."""
    window = max(rule.when.window_seconds, rule.recover.for_seconds)
    if rule.when.rises_by is not None or rule.when.falls_by is not None:
        # Of a sum two means are compared.
        window *= 2
    return max(window, LEAST_MEAN) + GAP_SECONDS + SETTLED


def step_of(window: float) -> int:
    """Of which length samples are read for so long a window."""
    if window <= FINE_SECONDS + GAP_SECONDS + SETTLED:
        return 1
    return 60 if window <= MINUTES_SECONDS else 3600


def judge(rule: Rule, line: Line, heard: Sequence[int], now: float) -> Judged:
    """What is to be said at ``now`` by what was known then.

    ``heard``: the times, of the same step, in which samples of this kind were taken at all.
    """
    if rule.when.absent_seconds is not None:
        return _absent(rule.when.absent_seconds, line, heard, now)
    if line.is_sum:
        return _sum(rule.when, rule.recover, line, heard, now)
    if rule.when.rises_by is not None or rule.when.falls_by is not None:
        return _moved(rule.when, line, now)
    return _level(rule.when, rule.recover, line, now)


def is_bad(when: When, value: float) -> bool:
    """Whether the value is past its limit."""
    if when.above is not None:
        return value > when.above
    return when.below is not None and value < when.below


def is_good(when: When, recover: Recover, value: float) -> bool:
    """Whether the value is where trouble has recovered."""
    if when.above is not None and recover.below is not None:
        return value < recover.below
    if when.below is not None and recover.above is not None:
        return value > recover.above
    return not is_bad(when, value)


def has_recovered(rule: Rule, judged: Judged, now: float) -> bool:
    """Whether trouble is over by this verdict."""
    if judged.verdict is not Verdict.OK:
        return False
    return judged.since is None or now - judged.since >= rule.recover.for_seconds


# --- gauges ------------------------------------------------------------------------------------


def _level(when: When, recover: Recover, line: Line, now: float) -> Judged:
    last = _last(line, now)
    if last is None:
        return UNKNOWN
    value = line.values[last]
    if is_bad(when, value):
        since = _since(line, last, lambda each: is_bad(when, each))
        firing = now - since >= when.for_seconds
        return Judged(Verdict.FIRING if firing else Verdict.PENDING, value, since)
    if not is_good(when, recover, value):
        return Judged(Verdict.BETWEEN, value)
    return Judged(Verdict.OK, value, _since(line, last, lambda each: is_good(when, recover, each)))


def _moved(when: When, line: Line, now: float) -> Judged:
    """By how much it is away from its lowest (highest) of the last ``in_seconds``."""
    last = _last(line, now)
    if last is None:
        return UNKNOWN
    first = bisect_left(line.times, now - when.in_seconds, 0, last + 1)
    value = line.values[last]
    before = line.values[first:last]
    if not before:
        return UNKNOWN
    moved = value - min(before) if when.rises_by is not None else max(before) - value
    limit = when.rises_by if when.rises_by is not None else when.falls_by
    if limit is not None and moved >= limit:
        return Judged(Verdict.FIRING, value, line.times[first])
    # The window is its own hysteresis.
    return Judged(Verdict.OK, value)


def _last(line: Line, now: float) -> int | None:
    """The place of the newest sample; None where it is too old to tell of now."""
    found = bisect_right(line.times, now) - 1
    if found < 0 or now - (line.times[found] + line.step) > GAP_SECONDS:
        return None
    return found


def _since(line: Line, last: int, holds: Callable[[float], bool]) -> float:
    """Since when, without a pause, ``holds`` was true of every sample up to ``last``."""
    place = last
    while (
        place > 0
        and line.times[place] - (line.times[place - 1] + line.step) <= GAP_SECONDS
        and holds(line.values[place - 1])
    ):
        place -= 1
    return line.times[place]


# --- sums --------------------------------------------------------------------------------------


def _sum(when: When, recover: Recover, line: Line, heard: Sequence[int], now: float) -> Judged:
    """By how many a second there were on average; the mean needs no further patience."""
    end = now - SETTLED
    if when.rises_by is not None or when.falls_by is not None:
        return _sum_moved(when, line, heard, end)
    span = max(when.for_seconds, LEAST_MEAN)
    mean = _mean(line, heard, end - span, end)
    if mean is None:
        return UNKNOWN
    if is_bad(when, mean):
        return Judged(Verdict.FIRING, mean, end - span)
    return Judged(Verdict.OK if is_good(when, recover, mean) else Verdict.BETWEEN, mean)


def _sum_moved(when: When, line: Line, heard: Sequence[int], end: float) -> Judged:
    middle = end - when.in_seconds
    after = _mean(line, heard, middle, end)
    before = _mean(line, heard, middle - when.in_seconds, middle)
    if after is None or before is None:
        return UNKNOWN
    rise = after - before
    limit, moved = (when.rises_by, rise) if when.rises_by is not None else (when.falls_by, -rise)
    firing = limit is not None and moved >= limit
    return Judged(Verdict.FIRING if firing else Verdict.OK, after, middle if firing else None)


def _mean(line: Line, heard: Sequence[int], begin: float, end: float) -> float | None:
    """How many a second; None where too little of the time is known."""
    known = _between(heard, begin, end) * line.step
    if known < LEAST_HEARD * (end - begin):
        return None
    first, last = bisect_left(line.times, begin), bisect_left(line.times, end)
    return sum(line.values[first:last]) / known


def _absent(span: float, line: Line, heard: Sequence[int], now: float) -> Judged:
    """No sample in the last ``span`` seconds, in which others were taken all the time."""
    end = now - SETTLED if line.is_sum else now
    first, last = bisect_left(line.times, end - span), bisect_right(line.times, end)
    if any(not line.is_sum or each for each in line.values[first:last]):
        return Judged(Verdict.OK, line.values[last - 1])
    if not _steady(heard, line.step, end - span, end):
        return UNKNOWN
    return Judged(Verdict.FIRING, None, end - span)


def _steady(heard: Sequence[int], step: int, begin: float, end: float) -> bool:
    """Whether samples were taken all the time, without a pause that matters."""
    first, last = bisect_left(heard, begin - step), bisect_right(heard, end)
    times = [begin - step, *heard[first:last], end]
    return (
        all(after - (before + step) <= GAP_SECONDS for before, after in itertools.pairwise(times))
        and last > first
    )


def _between(times: Sequence[int], begin: float, end: float) -> int:
    return bisect_left(times, end) - bisect_left(times, begin)
