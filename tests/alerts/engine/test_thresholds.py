"""Evaluation of series from stored samples: unknown periods neither fire nor recover."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from apps.alerts.engine.rule_parser import rule_of
from apps.alerts.engine.rules import Rule
from apps.alerts.engine.thresholds import (
    Evaluation,
    SampleSeries,
    SeriesState,
    evaluate,
    has_recovered,
)

NOW = 100_000


def rule(when: dict[str, Any], recover: dict[str, Any] | None = None) -> Rule:
    entry: dict[str, Any] = {"name": "x", "series": "a.b", "when": when}
    return rule_of(entry | ({"recover": recover} if recover else {}))


def gauge(values: dict[int, float]) -> SampleSeries:
    """Return a gauge series from values keyed by their age in seconds."""
    ago = sorted(values, reverse=True)
    return SampleSeries(False, 1, [NOW - each for each in ago], [values[each] for each in ago])


def every_5s(value: float, since: int, until: int = 0) -> dict[int, float]:
    return dict.fromkeys(range(until, since + 1, 5), value)


def state(of: Rule, line: SampleSeries, heard: list[int] | None = None) -> Evaluation:
    return evaluate(of, line, line.times if heard is None else heard, NOW)


ABOVE = {"above": 10, "for_seconds": 60}


def test_above_for_long_enough() -> None:
    assert state(rule(ABOVE), gauge(every_5s(11, 55))).state is SeriesState.PENDING
    found = state(rule(ABOVE), gauge(every_5s(11, 60)))
    assert (found.state, found.value, found.since) == (SeriesState.FIRING, 11, NOW - 60)
    assert state(rule(ABOVE), gauge(every_5s(10, 90))).state is SeriesState.OK


def test_one_good_sample_begins_the_time_anew() -> None:
    line = gauge(every_5s(11, 90) | {30: 9})
    found = state(rule(ABOVE), line)
    assert (found.state, found.since) == (SeriesState.PENDING, NOW - 25)


def test_a_gap_is_neither_above_nor_below() -> None:
    # A gap of 40 s without samples restarts the count.
    line = gauge(every_5s(11, 90, 45) | every_5s(11, 4))
    assert state(rule(ABOVE), line).state is SeriesState.PENDING
    # Without recent samples the state is unknown.
    assert state(rule(ABOVE), gauge(every_5s(11, 90, 35))).state is SeriesState.UNKNOWN
    assert state(rule({"below": 5}), gauge({})).state is SeriesState.UNKNOWN


def test_between_the_two_limits_nothing_changes() -> None:
    of = rule(ABOVE, {"below": 8})
    assert state(of, gauge(every_5s(9, 90))).state is SeriesState.BETWEEN
    assert not has_recovered(of, state(of, gauge(every_5s(9, 90))), NOW)
    assert not has_recovered(of, state(of, gauge(every_5s(7, 55))), NOW)
    assert has_recovered(of, state(of, gauge(every_5s(7, 60))), NOW)


def test_below_is_the_same_the_other_way_round() -> None:
    of = rule({"below": 2, "for_seconds": 10}, {"above": 4, "for_seconds": 0})
    assert state(of, gauge(every_5s(1, 10))).state is SeriesState.FIRING
    assert state(of, gauge(every_5s(3, 10))).state is SeriesState.BETWEEN
    assert has_recovered(of, state(of, gauge(every_5s(5, 0))), NOW)


def test_absent_means_that_others_were_measured() -> None:
    of = rule({"absent_seconds": 60})
    looked = [NOW - each for each in range(90, -1, -5)]
    assert state(of, gauge({}), looked).state is SeriesState.FIRING
    assert state(of, gauge({30: 1}), looked).state is SeriesState.OK
    # Without samples of any series the state is unknown.
    assert state(of, gauge({}), []).state is SeriesState.UNKNOWN
    assert state(of, gauge({}), looked[-4:]).state is SeriesState.UNKNOWN


def test_how_fast_a_gauge_moves() -> None:
    up = rule({"rises_by": 100, "in_seconds": 60})
    assert state(up, gauge({50: 10, 25: 60, 0: 110})).state is SeriesState.FIRING
    assert state(up, gauge({70: 10, 25: 60, 0: 110})).state is SeriesState.OK
    assert state(up, gauge({0: 110})).state is SeriesState.UNKNOWN
    down = rule({"falls_by": 100, "in_seconds": 60})
    assert state(down, gauge({50: 110, 25: 200, 0: 90})).state is SeriesState.FIRING
    assert has_recovered(down, state(down, gauge({50: 90, 0: 90})), NOW)


def counts(per_second: float, since: int, until: int = 0) -> SampleSeries:
    times = [NOW - each for each in range(since, until, -1)]
    return SampleSeries(True, 1, times, [per_second] * len(times))


HEARD = [NOW - each for each in range(400, -1, -1)]


def test_of_sums_the_mean_counts() -> None:
    of = rule({"above": 5, "for_seconds": 60})
    assert state(of, counts(6, 120), HEARD).state is SeriesState.FIRING
    # Twice the rate in half of the window gives the same mean.
    found = state(of, counts(12, 32), HEARD)
    assert (found.state, found.value) == (SeriesState.FIRING, 6)
    assert state(of, counts(6, 30), HEARD).state is SeriesState.OK
    assert state(of, counts(6, 120), []).state is SeriesState.UNKNOWN


def test_no_counts_at_all_are_zero_where_somebody_listened() -> None:
    nothing = SampleSeries(True, 1, [], [])
    assert state(rule({"below": 1}), nothing, HEARD).state is SeriesState.FIRING
    assert state(rule({"below": 1}), nothing, []).state is SeriesState.UNKNOWN
    assert state(rule({"absent_seconds": 60}), nothing, HEARD).state is SeriesState.FIRING
    assert state(rule({"absent_seconds": 60}), counts(1, 90), HEARD).state is SeriesState.OK


def test_how_fast_a_rate_moves() -> None:
    line = counts(10, 122, 62)
    fell = rule({"falls_by": 8, "in_seconds": 60})
    assert state(fell, line, HEARD).state is SeriesState.FIRING
    assert state(rule({"rises_by": 8, "in_seconds": 60}), line, HEARD).state is SeriesState.OK


@given(st.lists(st.tuples(st.integers(0, 300), st.floats(-1e9, 1e9)), max_size=60))
def test_a_verdict_follows_from_its_own_samples(points: list[tuple[int, float]]) -> None:
    line = gauge(dict(points))
    of = rule({"above": 0, "for_seconds": 30})
    found = state(of, line)
    if found.state is SeriesState.FIRING:
        assert found.since is not None
        span = [v for t, v in zip(line.times, line.values, strict=True) if t >= found.since]
        assert all(value > 0 for value in span)
        assert NOW - found.since >= 30
    if found.state is SeriesState.OK:
        assert line.values[-1] <= 0


def test_samples_of_later_are_not_seen() -> None:
    # A preview evaluates at an earlier time.
    line = gauge(every_5s(1, 200) | every_5s(99, 50))
    assert evaluate(rule(ABOVE), line, line.times, NOW - 60).state is SeriesState.OK
