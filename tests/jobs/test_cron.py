"""Cron expressions against a slow and obvious reference: every minute, looked at one by one."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from django.core.exceptions import ValidationError
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.jobs.engine.cron import (
    next_times,
    parse_cron,
    times_between,
    validate_cron,
    validate_time_zone,
)

MINUTE = timedelta(minutes=1)
# Clocks that move by an hour, by half an hour, at midnight, westwards and eastwards, and never.
ZONES = (
    "Europe/Berlin",
    "America/New_York",
    "Asia/Shanghai",
    "Australia/Lord_Howe",
    "America/Havana",
    "America/Santiago",
    "Africa/Cairo",
    "UTC",
)
# Around the changes of those zones, in 2026.
STARTS = tuple(
    datetime(2026, month, day, tzinfo=UTC)
    for month, day in [
        (3, 7), (3, 28), (4, 3), (4, 4), (4, 23), (9, 5), (10, 2), (10, 24), (10, 29), (10, 31),
    ]
)  # fmt: skip


def numbers(field: str, first: int, last: int, end: int | None = None) -> set[int]:
    """The values of a field, by the book: written anew, for the tests alone.

    ``end`` is where ``n/step`` ends, if not at ``last``: a week that begins on a Monday has a
    Sunday too, the day 7.
    """
    found = set()
    for term in field.split(","):
        span, _slash, step = term.partition("/")
        low, dash, high = span.partition("-")
        if span == "*":
            found |= set(range(first, last + 1, int(step or 1)))
        elif dash:
            found |= set(range(int(low), int(high) + 1, int(step or 1)))
        else:
            found |= set(range(int(low), ((end or last) if step else int(low)) + 1, int(step or 1)))
    return found


def brute_force(expression: str, zone: str, after: datetime, through: datetime) -> list[datetime]:
    """The times in (after, through]: walk over the minutes, look at the clock on the wall."""
    minute, hour, day, month, weekday = expression.split()
    minutes, hours = numbers(minute, 0, 59), numbers(hour, 0, 23)
    days, months = numbers(day, 1, 31), numbers(month, 1, 12)
    weekdays = {each % 7 for each in numbers(weekday, 0, 6, 7)}
    both = day.startswith("*") or weekday.startswith("*")
    named = not minute.startswith("*") and not hour.startswith("*")

    def fits(wall: datetime) -> bool:
        fitting = [wall.day in days, wall.isoweekday() % 7 in weekdays]
        by_day = all(fitting) if both else any(fitting)
        return by_day and wall.month in months and wall.minute in minutes and wall.hour in hours

    found: list[datetime] = []
    seen: set[datetime] = set()
    # From a day before, so that what came first in a repeated hour is known.
    moment = after.replace(second=0, microsecond=0) - timedelta(days=1)
    previous = moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None) - MINUTE
    while moment <= through:
        wall = moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
        skipped = [previous + n * MINUTE for n in range(1, int((wall - previous) / MINUTE))]
        due = fits(wall) and not (named and wall in seen)
        due = due or (named and any(fits(each) for each in skipped))
        seen.add(wall)
        previous = wall
        if due and moment > after:
            found.append(moment)
        moment += MINUTE
    return found


def field(first: int, last: int) -> st.SearchStrategy[str]:
    number = st.integers(first, last)
    ordered = st.tuples(number, number).map(sorted).map(lambda pair: f"{pair[0]}-{pair[1]}")
    step = st.integers(1, max(1, (last - first) // 2))
    term = st.one_of(
        st.just("*"),
        number.map(str),
        ordered,
        st.builds("{}/{}".format, st.one_of(st.just("*"), number.map(str), ordered), step),
    )
    return st.lists(term, min_size=1, max_size=3).map(",".join)


EXPRESSIONS = st.builds(
    "{} {} {} {} {}".format, field(0, 59), field(0, 23), field(1, 28), st.just("*"), field(0, 6)
)


@pytest.mark.slow("8 s")
@settings(max_examples=150, deadline=None)
@given(
    expression=EXPRESSIONS,
    zone=st.sampled_from(ZONES),
    start=st.sampled_from(STARTS),
    offset=st.integers(0, 24 * 60),
    seconds=st.integers(0, 59),
)
def test_times_are_those_of_the_clock_on_the_wall(
    expression: str, zone: str, start: datetime, offset: int, seconds: int
) -> None:
    after = start + timedelta(minutes=offset, seconds=seconds)
    through = after + timedelta(hours=30)
    expected = brute_force(expression, zone, after, through)
    assert times_between(parse_cron(expression), zone, after, through, 10_000) == expected
    assert next_times(parse_cron(expression), zone, after, 3)[: len(expected)] == expected[:3]


@settings(max_examples=60, deadline=None)
@given(
    minute=st.integers(0, 59),
    hour=st.integers(0, 23),
    day=field(1, 31),
    zone=st.sampled_from(ZONES[:3]),
    start=st.sampled_from(STARTS),
)
def test_named_times_are_those_of_another_implementation(
    minute: int, hour: int, day: str, zone: str, start: datetime
) -> None:
    if any("/" in term and not term.startswith("*") for term in day.split(",")):
        day = "*"  # the other one reads a range of one number with a step as an open one
    expression = f"{minute} {hour} {day} * *"
    theirs = CronSim(expression, start.astimezone(ZoneInfo(zone)))
    expected = [next(theirs).astimezone(UTC) for _ in range(5)]
    assert next_times(parse_cron(expression), zone, start, 5) == expected


@pytest.mark.covers("S1.3")
@pytest.mark.parametrize(
    ("expression", "zone", "day", "expected"),
    [
        # 02:30 does not exist on 29 March in Berlin: made up for at 03:00.
        ("30 2 * * *", "Europe/Berlin", "2026-03-28 12:00", ["29 01:00", "30 00:30"]),
        # It comes twice on 25 October: the first time only.
        ("30 2 * * *", "Europe/Berlin", "2026-10-24 12:00", ["25 00:30", "26 01:30"]),
        # One for every hour that passes, the repeated one included.
        ("0 * * * *", "Europe/Berlin", "2026-10-24 23:30", ["25 00:00", "25 01:00"]),
        ("30 2 * * *", "America/New_York", "2026-03-08 00:00", ["08 07:00", "09 06:30"]),
        ("0 6 * * 1-5", "Asia/Shanghai", "2026-03-06 00:00", ["08 22:00", "09 22:00"]),
        ("0 0 1 * MON", "UTC", "2026-06-01 00:00", ["08 00:00", "15 00:00"]),
        ("0 0 */2 JAN,JUN SUN", "UTC", "2026-06-01 00:00", ["07 00:00", "21 00:00"]),
        ("0 0 * * 7", "UTC", "2026-06-01 00:00", ["07 00:00", "14 00:00"]),
    ],
)
def test_known_times(expression: str, zone: str, day: str, expected: list[str]) -> None:
    after = datetime.fromisoformat(f"{day}+00:00")
    found = next_times(parse_cron(expression), zone, after, 2)
    assert [f"{each:%d %H:%M}" for each in found] == expected


def test_rare_days_are_found() -> None:
    after = datetime(2026, 1, 1, tzinfo=UTC)
    found = next_times(parse_cron("0 0 29 2 */7"), "UTC", after, 2)
    assert [each.year for each in found] == [2032, 2060]


def test_no_more_than_asked_for_and_nothing_outside() -> None:
    cron = parse_cron("* * * * *")
    start = datetime(2026, 1, 1, tzinfo=UTC)
    found = times_between(cron, "UTC", start, start + timedelta(days=400), 1000)
    assert (len(found), found[0], found[-1]) == (1000, start + MINUTE, start + 1000 * MINUTE)
    assert times_between(cron, "UTC", start, start, 10) == []
    assert times_between(cron, "UTC", start, start + MINUTE, 10) == [start + MINUTE]


@pytest.mark.covers("S1.12")
@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("60 * * * *", ("minute", "60", "0 and 59")),
        ("* 24 * * *", ("hour", "24", "0 and 23")),
        ("* * 0 * *", ("day of the month", "0", "1 and 31")),
        ("* * * 13 *", ("month", "13", "1 and 12")),
        ("* * * * 8", ("weekday", "8", "0 and 7")),
        ("* * * * MOON", ("weekday", "MOON")),
        ("JAN * * * *", ("minute", "JAN")),
        ("*/0 * * * *", ("minute", "*/0", "step")),
        ("*/x * * * *", ("minute", "*/X", "step")),
        ("9-5 * * * *", ("minute", "9-5", "ends before")),
        ("1,,2 * * * *", ("minute", "neither")),
        ("-1 * * * *", ("minute", "-1")),
        ("1-2-3 * * * *", ("minute", "1-2-3")),
        ("٣ * * * *", ("minute", "٣")),
        ("* * 30 FEB *", ("never fires",)),
        ("* * * *", ("five fields", "4")),
        ("0 * * * * *", ("five fields", "6")),
        ("@daily", ("five fields", "1")),
        ("* * L * *", ("day of the month", "L")),
        (f"{'1,' * 60}1 * * * *", ("longer", "100")),
        ("\x00 * * * *", ("minute",)),
    ],
)
def test_a_refusal_says_where_and_why(expression: str, words: Iterable[str]) -> None:
    with pytest.raises(ValidationError) as refused:
        validate_cron(expression)
    (message,) = refused.value.messages
    assert message.startswith("The cron expression is not valid: ")
    for word in words:
        assert word in message


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="0123456789*/-, MONJAnL#?@٣\x00", max_size=40))
def test_any_text_is_understood_or_refused(text: str) -> None:
    try:
        validate_cron(text)
    except ValidationError:
        return
    if text:
        assert next_times(parse_cron(text), "Europe/Berlin", STARTS[0], 1)


def test_no_cron_is_fine() -> None:
    validate_cron("")


@pytest.mark.parametrize("name", ["Asia/Shanghai", "UTC", "America/Argentina/Buenos_Aires"])
def test_zones(name: str) -> None:
    validate_time_zone(name)


@pytest.mark.parametrize(
    "name", ["", "Mars/Base", "../../etc/passwd", "/etc/localtime", " UTC", "\x00"]
)
def test_what_is_no_zone(name: str) -> None:
    with pytest.raises(ValidationError, match="is not a time zone"):
        validate_time_zone(name)
