"""Parsing of dates, and the age limit of records."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.sources.engine.dates import Age, age_of, read_date
from apps.sources.engine.settings import Source

NOW = datetime(2026, 1, 16, 12, tzinfo=UTC)
DAY_END = (23, 59, 59, 999999)


@pytest.mark.parametrize(
    ("value", "pattern", "zone", "expected"),
    [
        ("2026-01-08", "", "UTC", datetime(2026, 1, 8, *DAY_END, tzinfo=UTC)),
        ("2026/1/8", "", "UTC", datetime(2026, 1, 8, *DAY_END, tzinfo=UTC)),
        ("2026.01.08", "", "UTC", datetime(2026, 1, 8, *DAY_END, tzinfo=UTC)),
        ("2026年1月8日", "", "UTC", datetime(2026, 1, 8, *DAY_END, tzinfo=UTC)),
        ("2026年1月8日 12:30", "", "Asia/Shanghai", datetime(2026, 1, 8, 4, 30, tzinfo=UTC)),
        ("2026-01-08 12:30:05", "", "Asia/Shanghai", datetime(2026, 1, 8, 4, 30, 5, tzinfo=UTC)),
        ("2026/1/8 2:05", "", "UTC", datetime(2026, 1, 8, 2, 5, tzinfo=UTC)),
        ("2026-01-08T12:30:05Z", "", "Asia/Shanghai", datetime(2026, 1, 8, 12, 30, 5, tzinfo=UTC)),
        ("2026-01-08T12:30:05+08:00", "", "UTC", datetime(2026, 1, 8, 4, 30, 5, tzinfo=UTC)),
        (" 2026-01-08 12:30 ", "", "UTC", datetime(2026, 1, 8, 12, 30, tzinfo=UTC)),
        (1_767_875_400, "", "UTC", datetime(2026, 1, 8, 12, 30, tzinfo=UTC)),
        (1_767_875_400_000, "", "UTC", datetime(2026, 1, 8, 12, 30, tzinfo=UTC)),
        ("1767875400", "", "UTC", datetime(2026, 1, 8, 12, 30, tzinfo=UTC)),
        ("08.01.26 12h30", "%d.%m.%y %Hh%M", "UTC", datetime(2026, 1, 8, 12, 30, tzinfo=UTC)),
        ("2026-01-08", "%d.%m.%y", "UTC", None),
        ("8 days ago", "", "UTC", None),
        ("2026-13-08", "", "UTC", None),
        ("2026-02-30 10:00", "", "UTC", None),
        ("2026-01-08 25:00", "", "UTC", None),
        ("", "", "UTC", None),
        (None, "", "UTC", None),
        (True, "", "UTC", None),
        (["2026-01-08"], "", "UTC", None),
        (float("inf"), "", "UTC", None),
        (10**30, "", "UTC", None),
        ("9" * 99, "", "UTC", None),
    ],
)
def test_dates_are_read(value: Any, pattern: str, zone: str, expected: datetime | None) -> None:
    assert read_date(value, pattern, zone) == expected


@given(st.one_of(st.text(max_size=30), st.integers(), st.floats(), st.binary(max_size=5)))
def test_no_value_breaks_the_reader(value: Any) -> None:
    found = read_date(value)
    assert found is None or found.tzinfo is UTC


@given(st.datetimes(NOW.replace(tzinfo=None, year=1990), NOW.replace(tzinfo=None, year=2090)))
def test_what_is_written_as_usual_is_read_back(moment: datetime) -> None:
    whole = moment.replace(microsecond=0)
    for text in (whole.isoformat(), whole.isoformat(" "), whole.strftime("%Y/%m/%d %H:%M:%S")):
        assert read_date(text) == whole.replace(tzinfo=UTC)


@pytest.mark.covers("S0.7", "S0.29")
@pytest.mark.parametrize(
    ("moment", "age"),
    [
        (NOW, Age.VALID),
        (NOW - timedelta(days=7), Age.VALID),
        (NOW - timedelta(days=7, seconds=1), Age.EXPIRED),
        (NOW + timedelta(days=1), Age.VALID),
        (NOW + timedelta(days=1, seconds=1), Age.FUTURE),
    ],
)
def test_records_of_the_last_seven_days_are_valid(moment: datetime, age: Age) -> None:
    source = Source(date_field="at")
    assert age_of({"at": moment.isoformat()}, source, NOW) is age
    nested = Source(date_field="meta.at")
    assert age_of({"meta": {"at": moment.isoformat()}}, nested, NOW) is age


def test_without_a_field_or_a_limit_nothing_is_too_old() -> None:
    assert age_of({"at": "1990-01-01"}, Source(), NOW) is Age.VALID
    assert age_of({"at": "1990-01-01"}, Source(date_field="at", filter_days=0), NOW) is Age.VALID
    assert age_of({}, Source(date_field="at"), NOW) is Age.UNREADABLE


def test_a_field_with_a_chinese_name_needs_no_quotes() -> None:
    assert age_of({"发布 时间": "1990-01-01"}, Source(date_field="发布 时间"), NOW) is Age.EXPIRED
