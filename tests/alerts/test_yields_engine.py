"""Baselines of a job and anomalies of a run."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from apps.alerts.engine.yields import RunYield, YieldLimits, assess, usual_interval

MONDAY = date(2026, 3, 2)
LIMITS = YieldLimits()


def brought(items: int, *, days_ago: int = 0, failed: int = 0, **fields: int) -> RunYield:
    day = MONDAY - timedelta(days=days_ago)
    return RunYield(day=day, items=items, success=100 - failed, failed=failed, fields=fields)


def past(*items: int, **fields: int) -> list[RunYield]:
    return [brought(count, days_ago=ago, **fields) for ago, count in enumerate(items, 1)]


def kinds(run: RunYield, before: list[RunYield], limits: YieldLimits = LIMITS) -> list[str]:
    return [one["kind"] for one in assess(run, before, limits).findings]


def test_too_short_a_past_says_nothing() -> None:
    judgement = assess(brought(0), past(1000, 1000, 1000, 1000), LIMITS)
    assert (judgement.usual, judgement.findings) == (None, [])


def test_far_fewer_items_than_usual_are_a_drop() -> None:
    before = past(1000, 1010, 990, 1005, 995, 1000, 1000)
    [finding] = assess(brought(400), before, LIMITS).findings
    assert finding == {"kind": "drop", "items": 400, "usual": 1000, "runs": 7, "weekday": False}
    assert kinds(brought(600), before) == []
    assert kinds(brought(600), before, YieldLimits(drop_below=0.9)) == ["drop"]
    assert kinds(brought(400), before, YieldLimits(drop_below=None)) == []


def test_a_job_that_swings_raises_no_alarm_for_one_more_swing() -> None:
    wild = past(200, 1800, 900, 1500, 300, 1200, 700)
    assert kinds(brought(400), wild) == []
    usual = assess(brought(400), wild, LIMITS).usual
    assert usual is not None
    assert usual.low < 400 < usual.high


def test_a_few_odd_runs_do_not_move_what_is_usual() -> None:
    before = past(1000, 1000, 0, 1000, 5, 1000, 1000, 1000)
    assert kinds(brought(1000), before) == []
    assert kinds(brought(100), before) == ["drop"]


def test_of_small_numbers_only_nothing_at_all_is_found() -> None:
    steady = past(3, 3, 3, 3, 3, 3)
    assert kinds(brought(1), steady) == []
    assert kinds(brought(0), steady) == ["drop"]
    assert kinds(brought(0), past(3, 0, 3, 3, 3, 3)) == []


def test_far_more_items_than_usual_are_a_rise() -> None:
    before = past(100, 104, 96, 100, 101, 99, 100)
    assert kinds(brought(1000), before) == ["rise"]
    assert kinds(brought(300), before) == []
    assert kinds(brought(1000), before, YieldLimits(rise_above=None)) == []


def test_the_same_weekday_is_compared_when_there_are_enough() -> None:
    # Five weeks: 100 items on Mondays, 1,000 on other days.
    before = [brought(100 if ago % 7 == 0 else 1000, days_ago=ago) for ago in range(1, 36)]
    judgement = assess(brought(100), before, LIMITS)
    assert judgement.findings == []
    assert judgement.usual is not None
    assert (judgement.usual.weekday, judgement.usual.runs) == (True, 5)
    # With fewer weeks it is compared with all days and with the few Mondays.
    judgement = assess(brought(100), before[:20], LIMITS)
    assert judgement.usual is not None
    assert not judgement.usual.weekday
    assert judgement.findings == []
    assert kinds(brought(10), before[:20]) == ["drop"]


def test_on_the_first_monday_the_difference_must_be_twice_as_large() -> None:
    # No runs on Mondays.
    week = [each for each in past(*[1000] * 13) if each.day.weekday()]
    assert kinds(brought(400), week) == []
    assert kinds(brought(240), week) == ["drop"]
    assert kinds(brought(0), week) == ["drop"]
    assert kinds(brought(9000), week) == []
    assert kinds(brought(11000), week) == ["rise"]


def test_in_its_first_week_no_day_of_a_job_is_an_alarm_for_being_another_day() -> None:
    """Jobs that start on any weekday, with low or high weekends, and any number of runs a day."""
    for begin in range(7):
        for weekend in (3, 100, 20_000):
            for runs in (1, 4):
                history: list[RunYield] = []
                for day in range(7):
                    at = MONDAY + timedelta(days=begin + day)
                    items = weekend if at.weekday() >= 5 else 1000
                    for _run in range(runs):
                        run = RunYield(day=at, items=items, success=100, failed=0)
                        assert assess(run, history, LIMITS).findings == [], (begin, weekend, at)
                        history.insert(0, run)
    # A run without any items is still an anomaly.
    assert kinds(brought(0), past(*[1000] * 5)) == ["drop"]


def test_where_nothing_is_usual_something_is_no_rise() -> None:
    before = past(0, 0, 3, 0, 0, 0, 0, 2)
    assert kinds(brought(9), before) == []
    assert kinds(brought(0), before) == []
    assert kinds(brought(0), past(*[0] * 20)) == []


def test_many_runs_of_one_day_are_no_weekdays() -> None:
    # 24 runs of one Monday morning are no baseline for Mondays.
    today = [brought(10) for _ in range(24)]
    judgement = assess(brought(10), [*today, *past(1000, 1000, 1000)], LIMITS)
    assert judgement.usual is not None
    assert not judgement.usual.weekday


def test_a_field_that_is_empty_far_more_often_is_found() -> None:
    before = past(*[1000] * 8, url=1000, price=990, note=400)
    run = brought(1000, url=1000, price=400, note=350)
    [finding] = assess(run, before, LIMITS).findings
    assert finding["kind"] == "coverage"
    assert finding["fields"] == [{"name": "price", "share": 0.4, "usual": 0.99}]
    gone = assess(brought(1000, url=1000), before, LIMITS).findings[0]
    assert [one["name"] for one in gone["fields"]] == ["price", "note"]
    assert gone["count"] == 2


def test_a_share_of_few_items_is_no_proof() -> None:
    before = past(*[8] * 8, url=8, note=5)
    assert kinds(brought(8, url=8, note=2), before) == []
    assert kinds(brought(4), past(*[4] * 8, url=4)) == []


def test_failures_are_compared_with_the_usual_share() -> None:
    before = [brought(10, days_ago=ago, failed=2) for ago in range(1, 8)]
    assert kinds(brought(10, failed=20), before) == []
    [finding] = assess(brought(10, failed=60), before, LIMITS).findings
    assert finding == {"kind": "failures", "failed": 60, "done": 100, "share": 0.6, "usual": 0.02}


def test_all_failed_is_found_without_any_past() -> None:
    assert kinds(brought(0, failed=100), []) == ["failures"]
    assert kinds(brought(0, failed=99), []) == []
    one = RunYield(day=MONDAY, items=0, success=0, failed=1)
    assert kinds(one, []) == ["failures"]
    assert kinds(one, [], YieldLimits(failures_rise=None)) == []


def test_the_usual_interval_is_the_median_and_the_longest_is_told() -> None:
    end = datetime(2026, 3, 2, tzinfo=UTC)
    ends = [end - timedelta(hours=hours) for hours in (0, 1, 2, 3, 13, 14, 15)]
    assert usual_interval(ends) == (timedelta(hours=1), timedelta(hours=10))
    assert usual_interval(ends[:5]) is None


@pytest.mark.slow("1 s")
@pytest.mark.parametrize("seed", range(3))
def test_steady_jobs_raise_hardly_any_false_alarm(seed: int) -> None:
    dice = random.Random(seed)
    alarms = 0
    history: list[RunYield] = []
    for day in range(400):
        items = max(0, round(dice.gauss(1000, 150)))
        fields: dict[str, Any] = {
            "url": items,
            "note": sum(dice.random() < 0.3 for _ in range(items)),
        }
        run = RunYield(
            day=MONDAY + timedelta(days=day), items=items, success=items, failed=0, fields=fields
        )
        alarms += bool(assess(run, history, LIMITS).findings)
        history.insert(0, run)
    # One run in 2,000 has less than half of the usual items.
    assert alarms <= 1
