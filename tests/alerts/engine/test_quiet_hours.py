"""Quiet hours across midnight, on chosen days, in a time zone."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.alerts.engine.quiet import QuietHours


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


# 2026-03-02 is a Monday; Shanghai is eight hours ahead.
NIGHT = QuietHours(time(22), time(7), frozenset({0}), "Asia/Shanghai", frozenset({"critical"}))


@pytest.mark.parametrize(
    ("now", "until"),
    [
        ("2026-03-02T13:59", None),
        ("2026-03-02T14:00", "2026-03-02T23:00"),
        ("2026-03-02T22:59", "2026-03-02T23:00"),
        ("2026-03-02T23:00", None),
        # Not quiet: the night that begins on Tuesday.
        ("2026-03-03T15:00", None),
        # Nor the night that begins on Sunday, although it ends on Monday.
        ("2026-03-01T20:00", None),
    ],
)
def test_a_night_belongs_to_the_day_of_its_beginning(now: str, until: str | None) -> None:
    assert NIGHT.until(at(now), "warning") == (at(until) if until else None)


def test_some_severities_are_told_at_any_time() -> None:
    assert NIGHT.until(at("2026-03-02T15:00"), "critical") is None


def test_whole_days_touch_each_other() -> None:
    weekend = QuietHours(time(0), time(0), frozenset({5, 6}))
    assert weekend.until(at("2026-03-07T12:00"), "info") == at("2026-03-09T00:00")
    assert weekend.until(at("2026-03-09T00:00"), "info") is None


def test_always_quiet_has_an_end_to_ask_again_at() -> None:
    always = QuietHours(time(0), time(0))
    assert always.until(at("2026-03-02T12:00"), "info") == at("2026-03-10T00:00")


def test_an_hour_that_is_skipped_by_the_clocks_does_no_harm() -> None:
    # 2026-03-29: Berlin skips from 2:00 to 3:00.
    early = QuietHours(time(1), time(4), time_zone="Europe/Berlin")
    assert early.until(at("2026-03-29T00:30"), "info") == at("2026-03-29T02:00")


def test_an_hour_that_comes_twice_is_quiet_twice() -> None:
    # 2026-10-25: Berlin repeats the hour from 2:00 to 3:00.
    late = QuietHours(time(22), time(2, 30), time_zone="Europe/Berlin")
    assert late.until(at("2026-10-25T00:10"), "info") == at("2026-10-25T01:30")
    assert late.until(at("2026-10-25T01:29"), "info") == at("2026-10-25T01:30")
    assert late.until(at("2026-10-25T01:30"), "info") is None


CLOCKS = st.times(max_value=time(23, 59)).map(lambda each: each.replace(second=0, microsecond=0))
DAYS = st.frozensets(st.integers(0, 6), min_size=1)
ZONES = ("UTC", "Asia/Shanghai", "Asia/Kolkata")
SHIFTING = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Beirut")


def is_quiet(hours: QuietHours, now: datetime) -> bool:
    """Reference implementation by wall-clock time alone."""
    wall = now.astimezone(ZoneInfo(hours.time_zone))
    clock, today = wall.time().replace(tzinfo=None), wall.weekday()
    if hours.begin < hours.end:
        return today in hours.days and hours.begin <= clock < hours.end
    begun = today in hours.days and clock >= hours.begin
    return begun or ((today - 1) % 7 in hours.days and clock < hours.end)


@pytest.mark.slow("1 s")
@given(CLOCKS, CLOCKS, DAYS, st.sampled_from(ZONES), st.integers(0, 9 * 24 * 60))
def test_it_is_quiet_until_the_first_minute_in_which_it_is_not(
    begin: time, end: time, days: frozenset[int], zone: str, minute: int
) -> None:
    hours = QuietHours(begin, end, days, zone)
    now = at("2026-03-01T00:00") + timedelta(minutes=minute)
    until = hours.until(now, "info")
    assert (until is not None) == is_quiet(hours, now)
    if until is None:
        return
    assert now < until <= now + timedelta(days=8)
    spans = (until - now) // timedelta(minutes=7)
    assert all(is_quiet(hours, now + timedelta(minutes=7) * step) for step in range(spans))
    assert is_quiet(hours, until - timedelta(minutes=1))
    if hours.begin != hours.end or len(days) < 7:
        assert not is_quiet(hours, until), "not a minute too early"


@pytest.mark.slow("1 s")
@given(CLOCKS, CLOCKS, DAYS, st.sampled_from(SHIFTING), st.integers(0, 366 * 24 * 4))
def test_where_clocks_are_moved_nobody_is_woken_in_quiet_hours(
    begin: time, end: time, days: frozenset[int], zone: str, quarter: int
) -> None:
    hours = QuietHours(begin, end, days, zone)
    now = at("2026-01-01T00:00") + timedelta(minutes=15 * quarter)
    until = hours.until(now, "info")
    if is_quiet(hours, now):
        assert until is not None
    if until is not None:
        assert now < until <= now + timedelta(days=8, hours=2)
