"""Slices of time by the clocks of a zone, where clocks change as well."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given, settings, strategies

from apps.seeds.engine.errors import InvalidFrontierSetting
from apps.seeds.engine.seeds import DEFAULT_SEGMENT, FIRST_TIME, LAST_TIME
from apps.seeds.engine.segments import SegmentResolver, segment_resolver, time_zone

NAMES = ["hour", "day", "days:3", "week", "month"]
ZONES = sorted(available_timezones())


def ms(moment: datetime) -> int:
    """As resolvers count."""
    return int(moment.timestamp() * 1000)


def local(zone: str, *parts: int, fold: int = 0) -> int:
    """What the wall clock of a zone shows."""
    return ms(datetime(*parts, tzinfo=ZoneInfo(zone), fold=fold))  # type: ignore[misc,arg-type]


@cache
def resolver(name: str, zone: str) -> SegmentResolver:
    """Kept: making one for each example would test nothing more."""
    return segment_resolver(name, ZoneInfo(zone))


@pytest.mark.covers("S3.3")
@pytest.mark.parametrize("zone", ["UTC", "Asia/Shanghai", "America/New_York", "Asia/Kathmandu"])
def test_a_day_begins_at_local_midnight(zone: str) -> None:
    day = resolver("day", zone)
    midnight = local(zone, 2026, 5, 29)
    assert day(midnight) == midnight
    assert day(local(zone, 2026, 5, 29, 23, 59, 59) + 999) == midnight
    assert day(midnight - 1) == local(zone, 2026, 5, 28)


@pytest.mark.covers("S3.3")
def test_the_other_slices() -> None:
    zone = "Asia/Shanghai"
    friday = local(zone, 2026, 5, 29, 13, 37)
    assert resolver("hour", zone)(friday) == local(zone, 2026, 5, 29, 13)
    assert resolver("week", zone)(friday) == local(zone, 2026, 5, 25)
    assert resolver("month", zone)(friday) == local(zone, 2026, 5, 1)
    assert resolver("none", zone)(friday) == DEFAULT_SEGMENT


@pytest.mark.covers("S3.3")
def test_days_are_counted_through_months_and_years() -> None:
    three = resolver("days:3", "UTC")
    days = [datetime(2025, 12, 20, 5, tzinfo=UTC) + timedelta(days=day) for day in range(30)]
    found = [three(ms(day)) for day in days]
    first = found.index(found[3])
    runs = [found[start : start + 3] for start in range(first, 27, 3)]
    assert all(len(set(run)) == 1 for run in runs)
    assert len({run[0] for run in runs}) == len(runs)
    assert {later - one for one, later in zip(found, found[3:], strict=False)} == {3 * 86_400_000}


def test_days_have_23_or_25_hours_when_clocks_change() -> None:
    zone = "Europe/Berlin"
    day = resolver("day", zone)
    spring = [day(local(zone, 2026, 3, number, 12)) for number in (29, 30)]
    autumn = [day(local(zone, 2026, 10, number, 12)) for number in (25, 26)]
    assert spring[1] - spring[0] == 23 * 3_600_000
    assert autumn[1] - autumn[0] == 25 * 3_600_000


def test_a_repeated_hour_is_a_segment_of_its_own() -> None:
    zone = "Europe/Berlin"
    hour = resolver("hour", zone)
    first = local(zone, 2026, 10, 25, 2, 30)
    second = local(zone, 2026, 10, 25, 2, 30, fold=1)
    assert second - first == 3_600_000
    assert hour(first) == local(zone, 2026, 10, 25, 2)
    assert hour(second) == local(zone, 2026, 10, 25, 2, fold=1)
    # Lord Howe's clocks go back by half an hour: the hour there has 90 minutes.
    zone = "Australia/Lord_Howe"
    hour = resolver("hour", zone)
    begin = local(zone, 2026, 4, 5, 1)
    assert hour(local(zone, 2026, 4, 5, 1, 40)) == begin
    assert hour(local(zone, 2026, 4, 5, 1, 40, fold=1)) == begin


@pytest.mark.parametrize(
    ("zone", "day"),
    [
        # Midnight is left out: the clock shows 01:00 then.
        ("Africa/Cairo", date(2026, 4, 24)),
        ("America/Sao_Paulo", date(2018, 11, 4)),
        ("Asia/Beirut", date(2026, 3, 29)),
        # Midnight comes twice.
        ("America/Havana", date(2026, 11, 1)),
        ("America/Goose_Bay", date(2009, 11, 1)),
    ],
    ids=["Cairo", "Sao Paulo", "Beirut", "Havana", "Goose Bay"],
)
def test_a_day_without_or_with_two_midnights_begins_at_its_first_moment(
    zone: str, day: date
) -> None:
    clock = ZoneInfo(zone)
    noon = local(zone, day.year, day.month, day.day, 12)
    begin = resolver("day", zone)(noon)
    moment = datetime.fromtimestamp(begin / 1000, clock)
    assert moment.date() == day
    assert (moment.astimezone(UTC) - timedelta(seconds=1)).astimezone(clock).date() < day


@pytest.mark.slow("1 s")
@settings(deadline=None, max_examples=400)
@given(
    zone=strategies.sampled_from(ZONES),
    name=strategies.sampled_from(NAMES),
    time=strategies.integers(FIRST_TIME, LAST_TIME - 1),
)
def test_a_segment_begins_at_or_before_its_times_in_every_zone(
    zone: str, name: str, time: int
) -> None:
    resolve = resolver(name, zone)
    begin = resolve(time)
    assert 0 < begin <= time
    assert resolve(begin) == begin
    longest = {"hour": 2, "day": 50, "days:3": 98, "week": 194, "month": 770}[name]
    assert time - begin < longest * 3_600_000


@pytest.mark.slow("3 s")
@settings(deadline=None, max_examples=300)
@given(
    zone=strategies.sampled_from(ZONES),
    time=strategies.integers(FIRST_TIME, LAST_TIME - 200_000_000),
    step=strategies.integers(0, 100_000_000),
)
def test_two_times_share_a_day_exactly_when_their_clocks_show_one_date(
    zone: str, time: int, step: int
) -> None:
    resolve, clock = resolver("day", zone), ZoneInfo(zone)
    dates = [datetime.fromtimestamp(each // 1000, clock).date() for each in (time, time + step)]
    assert (resolve(time) == resolve(time + step)) == (dates[0] == dates[1])


@settings(deadline=None, max_examples=150)
@given(zone=strategies.sampled_from(ZONES), year=strategies.integers(1973, 2098))
def test_every_day_of_a_year_begins_at_its_first_moment(zone: str, year: int) -> None:
    resolve, clock = resolver("day", zone), ZoneInfo(zone)
    noon = datetime(year, 1, 1, 12, tzinfo=UTC)
    for number in range(0, 365, 7):
        begin = resolve(ms(noon + timedelta(days=number)))
        shown = datetime.fromtimestamp(begin / 1000, clock)
        before = datetime.fromtimestamp(begin / 1000 - 1, clock)
        assert before.date() < shown.date()


@pytest.mark.parametrize(
    "name", ["", "Day", "days:0", "days:-1", "days:9999", "days:1.5", "year", "../x"]
)
def test_an_unknown_resolver_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(InvalidFrontierSetting, match=r"there are: .*day, days:N, hour"):
        segment_resolver(name, ZoneInfo("UTC"))


@pytest.mark.parametrize("name", ["", "Mars/Olympus", "../etc/passwd", "/etc/localtime", "Europe"])
def test_an_unknown_time_zone_is_refused(name: str) -> None:
    with pytest.raises(InvalidFrontierSetting, match="there is no time zone"):
        time_zone(name)
    assert time_zone("Asia/Shanghai").key == "Asia/Shanghai"
