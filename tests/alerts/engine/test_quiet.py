"""Quiet hours: across midnight, on some days, by the clocks of a place."""

from __future__ import annotations

from datetime import UTC, datetime, time

import pytest

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
        # The night from Tuesday on is not quiet.
        ("2026-03-03T15:00", None),
        # The night from Sunday on neither, though it ends on a Monday.
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
    # On 2026-03-29 the clocks of Berlin go from 2:00 to 3:00.
    early = QuietHours(time(1), time(4), time_zone="Europe/Berlin")
    assert early.until(at("2026-03-29T00:30"), "info") == at("2026-03-29T02:00")
