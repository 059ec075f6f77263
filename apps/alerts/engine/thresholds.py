"""Evaluation of a rule over the stored samples of one series.

Stateless: after a failover the next monitor comes to the same result. Seconds without samples are
unknown; they neither fire nor recover.
"""

from __future__ import annotations

import enum
import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from apps.alerts.engine.rules import Condition, Recovery, Rule

# Samples are taken every 5 s. An older sample is not current, and a longer gap is unobserved time.
GAP_SECONDS: Final = 30
# Minimum window of a rate; single seconds vary too much.
LEAST_MEAN: Final = 60
# Reports of a second have arrived when it is this old.
SETTLED: Final = 2
# Minimum observed share of a window for a mean.
LEAST_HEARD: Final = 0.5
# Longest windows for samples per second and per minute; longer ones use samples per hour.
FINE_SECONDS: Final = 600
MINUTES_SECONDS: Final = 6 * 86_400


class SeriesState(enum.StrEnum):
    """State of a series under a rule."""

    OK = "ok"
    # Beyond the threshold, but not yet for ``for_seconds``.
    PENDING = "pending"
    FIRING = "firing"
    # Within the threshold, but not yet beyond that of recovery.
    BETWEEN = "between"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class SampleSeries:
    """Samples of one series, oldest first.

    Of a gauge, each value is the mean in the ``step`` seconds from its time; of a sum, the count.
    """

    is_sum: bool
    step: int
    times: Sequence[int]
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """State of a series with its latest value, and the Unix time since which it is in that
    state."""

    state: SeriesState
    value: float | None = None
    since: float | None = None


UNKNOWN: Final = Evaluation(SeriesState.UNKNOWN)


def window_of(rule: Rule) -> float:
    """Return how many seconds of samples ``evaluate`` needs."""
    window = max(rule.when.window_seconds, rule.recover.for_seconds)
    if rule.when.rises_by is not None or rule.when.falls_by is not None:
        # For a sum, two means are compared.
        window *= 2
    return max(window, LEAST_MEAN) + GAP_SECONDS + SETTLED


def step_of(window: float) -> int:
    """Return the sample resolution, in seconds, for a window."""
    if window <= FINE_SECONDS + GAP_SECONDS + SETTLED:
        return 1
    return 60 if window <= MINUTES_SECONDS else 3600


def evaluate(rule: Rule, line: SampleSeries, heard: Sequence[int], now: float) -> Evaluation:
    """Evaluate a series at ``now``.

    ``heard``: times, in the same resolution, at which samples of this kind were taken at all.
    """
    if rule.when.absent_seconds is not None:
        return _absent(rule.when.absent_seconds, line, heard, now)
    if line.is_sum:
        return _sum(rule.when, rule.recover, line, heard, now)
    if rule.when.rises_by is not None or rule.when.falls_by is not None:
        return _moved(rule.when, line, now)
    return _level(rule.when, rule.recover, line, now)


def is_bad(when: Condition, value: float) -> bool:
    """Return whether the value is beyond the threshold."""
    if when.above is not None:
        return value > when.above
    return when.below is not None and value < when.below


def is_good(when: Condition, recover: Recovery, value: float) -> bool:
    """Return whether the value meets the condition of recovery."""
    if when.above is not None and recover.below is not None:
        return value < recover.below
    if when.below is not None and recover.above is not None:
        return value > recover.above
    return not is_bad(when, value)


def has_recovered(rule: Rule, evaluation: Evaluation, now: float) -> bool:
    """Return whether the series has been OK for the rule's recovery time."""
    if evaluation.state is not SeriesState.OK:
        return False
    return evaluation.since is None or now - evaluation.since >= rule.recover.for_seconds


# --- gauges ------------------------------------------------------------------------------------


def _level(when: Condition, recover: Recovery, line: SampleSeries, now: float) -> Evaluation:
    last = _last(line, now)
    if last is None:
        return UNKNOWN
    value = line.values[last]
    if is_bad(when, value):
        since = _since(line, last, lambda each: is_bad(when, each))
        firing = now - since >= when.for_seconds
        return Evaluation(SeriesState.FIRING if firing else SeriesState.PENDING, value, since)
    if not is_good(when, recover, value):
        return Evaluation(SeriesState.BETWEEN, value)
    return Evaluation(
        SeriesState.OK, value, _since(line, last, lambda each: is_good(when, recover, each))
    )


def _moved(when: Condition, line: SampleSeries, now: float) -> Evaluation:
    """Compare the value with the lowest (highest) of the last ``in_seconds``."""
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
        return Evaluation(SeriesState.FIRING, value, line.times[first])
    # No separate recovery time: the window provides the hysteresis.
    return Evaluation(SeriesState.OK, value)


def _last(line: SampleSeries, now: float) -> int | None:
    """Return the index of the newest sample; None if it is too old to be current."""
    index = bisect_right(line.times, now) - 1
    if index < 0 or now - (line.times[index] + line.step) > GAP_SECONDS:
        return None
    return index


def _since(line: SampleSeries, last: int, holds: Callable[[float], bool]) -> float:
    """Return since when ``holds`` is true of all samples up to ``last``, without a gap."""
    place = last
    while (
        place > 0
        and line.times[place] - (line.times[place - 1] + line.step) <= GAP_SECONDS
        and holds(line.values[place - 1])
    ):
        place -= 1
    return line.times[place]


# --- sums --------------------------------------------------------------------------------------


def _sum(
    when: Condition, recover: Recovery, line: SampleSeries, heard: Sequence[int], now: float
) -> Evaluation:
    """Evaluate the mean rate per second; averaging replaces ``for_seconds``."""
    end = now - SETTLED
    if when.rises_by is not None or when.falls_by is not None:
        return _sum_moved(when, line, heard, end)
    span = max(when.for_seconds, LEAST_MEAN)
    mean = _mean(line, heard, end - span, end)
    if mean is None:
        return UNKNOWN
    if is_bad(when, mean):
        return Evaluation(SeriesState.FIRING, mean, end - span)
    return Evaluation(SeriesState.OK if is_good(when, recover, mean) else SeriesState.BETWEEN, mean)


def _sum_moved(when: Condition, line: SampleSeries, heard: Sequence[int], end: float) -> Evaluation:
    middle = end - when.in_seconds
    after = _mean(line, heard, middle, end)
    before = _mean(line, heard, middle - when.in_seconds, middle)
    if after is None or before is None:
        return UNKNOWN
    rise = after - before
    limit, moved = (when.rises_by, rise) if when.rises_by is not None else (when.falls_by, -rise)
    firing = limit is not None and moved >= limit
    return Evaluation(
        SeriesState.FIRING if firing else SeriesState.OK, after, middle if firing else None
    )


def _mean(line: SampleSeries, heard: Sequence[int], begin: float, end: float) -> float | None:
    """Return the rate per second; None if too little of the window was observed."""
    known = _between(heard, begin, end) * line.step
    if known < LEAST_HEARD * (end - begin):
        return None
    first, last = bisect_left(line.times, begin), bisect_left(line.times, end)
    return sum(line.values[first:last]) / known


def _absent(span: float, line: SampleSeries, heard: Sequence[int], now: float) -> Evaluation:
    """Fire if the last ``span`` seconds have no sample although others were taken throughout."""
    end = now - SETTLED if line.is_sum else now
    first, last = bisect_left(line.times, end - span), bisect_right(line.times, end)
    if any(not line.is_sum or sample for sample in line.values[first:last]):
        return Evaluation(SeriesState.OK, line.values[last - 1])
    if not _steady(heard, line.step, end - span, end):
        return UNKNOWN
    return Evaluation(SeriesState.FIRING, None, end - span)


def _steady(heard: Sequence[int], step: int, begin: float, end: float) -> bool:
    """Return whether samples were taken throughout, without a relevant gap."""
    first, last = bisect_left(heard, begin - step), bisect_right(heard, end)
    times = [begin - step, *heard[first:last], end]
    return (
        all(after - (before + step) <= GAP_SECONDS for before, after in itertools.pairwise(times))
        and last > first
    )


def _between(times: Sequence[int], begin: float, end: float) -> int:
    return bisect_left(times, end) - bisect_left(times, begin)
