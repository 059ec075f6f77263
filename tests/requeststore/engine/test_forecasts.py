"""When a backlog is done, what is late, and how many fetchers would be enough."""

from __future__ import annotations

import random
from typing import Any

import pytest

from apps.requeststore.engine.forecast import (
    BacklogMeasurements,
    Lateness,
    Outlook,
    forecast,
    settled,
)

HOUR = 3600.0


def facts(**values: Any) -> BacklogMeasurements:
    """One fetcher that does 25 of the 20 that come a second; 60 000 wait, of half an hour."""
    usual: dict[str, Any] = {
        "backlog": 60_000,
        "created": 20.0,
        "processed": 25.0,
        "seconds": 300.0,
        "planned_seconds": 24 * HOUR,
        "oldest_age": 1800.0,
        "fetchers": 1.0,
        "running": 1,
    }
    return BacklogMeasurements(**(usual | values))


@pytest.mark.covers("S4.28")
def test_the_end_of_a_backlog_is_what_waits_by_what_it_shrinks() -> None:
    found = forecast(facts())
    assert found.outlook is Outlook.DONE
    assert found.eta_seconds == 60_000 / (25 - 20)
    assert found.lateness is Lateness.NONE
    assert found.capacity == 25.0
    assert found.needed == 1


@pytest.mark.covers("S4.28")
def test_a_backlog_that_grows_is_never_done_at_this_pace() -> None:
    found = forecast(facts(created=40.0, processed=25.0))
    assert (found.outlook, found.eta_seconds) == (Outlook.NEVER, None)
    assert found.needed == 2, "40/s need two of 25/s"


@pytest.mark.parametrize(
    ("changes", "outlook"),
    [
        ({"backlog": 0}, Outlook.EMPTY),
        ({"backlog": 0, "created": None, "processed": None}, Outlook.EMPTY),
        ({"created": None, "processed": None}, Outlook.UNKNOWN),
        ({"seconds": 59.0}, Outlook.UNKNOWN),
        ({"report_age": 61.0}, Outlook.STALE),
        ({"backlog": 100, "created": 25.0}, Outlook.KEEPS_PACE),
        ({"processed": 0.0}, Outlook.STANDS),
        ({"backlog": 5, "created": 0.0, "processed": 0.0}, Outlook.STANDS),
        ({"created": 24.9}, Outlook.NEVER),
    ],
)
def test_it_says_honestly_what_it_does_not_know(changes: dict[str, Any], outlook: Outlook) -> None:
    found = forecast(facts(**changes))
    assert found.outlook is outlook
    assert found.eta_seconds is None


@pytest.mark.covers("S4.28")
def test_what_came_at_once_must_be_done_by_its_own_deadline() -> None:
    # Nothing comes any more: all of it came an hour ago, and two are planned.
    found = forecast(facts(backlog=180_000, created=0.0, oldest_age=HOUR, planned_seconds=2 * HOUR))
    assert found.outlook is Outlook.DONE
    assert found.eta_seconds == 2 * HOUR
    assert found.lateness is Lateness.BACKLOG
    assert found.deadline_seconds == HOUR
    assert found.needed == 2


def test_a_steady_stream_needs_only_its_planned_time() -> None:
    # 25 come a second, 25 are done, the oldest waits 40 min as all before it did: all in time.
    found = forecast(facts(created=25.0, backlog=60_000, oldest_age=2400.0, planned_seconds=HOUR))
    assert found.lateness is Lateness.NONE
    assert found.needed == 1


def test_what_comes_now_may_wait_too_long() -> None:
    found = forecast(facts(created=25.0, backlog=180_000, oldest_age=600.0, planned_seconds=HOUR))
    assert found.lateness in (Lateness.NEW, Lateness.BACKLOG)
    assert found.wait_seconds == 7200.0
    assert found.needed >= 2


def test_what_is_late_is_to_be_caught_up() -> None:
    found = forecast(facts(backlog=9000, oldest_age=2 * HOUR, planned_seconds=HOUR))
    assert found.lateness is Lateness.OLDEST
    assert found.deadline_seconds == -HOUR
    assert found.needed == 2


def test_capacity_is_measured_by_the_fetchers_that_ran_meanwhile() -> None:
    # Three have just been started: they have not done anything yet.
    found = forecast(facts(fetchers=1.2, running=4, created=40.0))
    assert found.capacity == pytest.approx(25 / 1.2)
    assert found.needed == 2


def test_without_a_backlog_the_known_capacity_counts() -> None:
    quiet = {"backlog": 0, "created": 30.0, "processed": 30.0, "running": 4, "fetchers": 4.0}
    assert forecast(facts(**quiet, capacity=25.0)).needed == 2
    assert forecast(facts(**quiet, capacity=5.0)).needed == 8
    assert forecast(facts(**quiet)).needed == 3, "one less, to find out"
    assert forecast(facts(**(quiet | {"running": 1}))).needed == 1


def test_without_any_fetcher_one_is_wanted_and_nothing_is_divided_by_zero() -> None:
    found = forecast(facts(processed=0.0, fetchers=0.0, running=0))
    assert (found.outlook, found.needed) == (Outlook.STANDS, 1)


@pytest.mark.covers("S4.28")
def test_the_needed_fetchers_are_enough_whatever_the_figures() -> None:
    """Played forward second by second, a first-come queue with so many is in time."""
    chance = random.Random(28)
    judged = 0
    for _ in range(300):
        planned = chance.uniform(600, 4 * HOUR)
        age = chance.uniform(0, 0.8) * planned
        created = chance.choice([0.0, chance.uniform(0, 100)])
        bulk = chance.choice([0.0, chance.uniform(0, 200_000)])
        backlog = int(bulk + created * age)
        found = forecast(
            facts(
                backlog=backlog,
                created=created,
                processed=chance.uniform(1, 50),
                planned_seconds=planned,
                oldest_age=age,
            )
        )
        if found.outlook is Outlook.KEEPS_PACE or not found.capacity or not backlog:
            continue
        judged += 1
        # Up to a tenth of a fetcher is left out, see SPARE; and a second is the grain.
        pace = (found.needed + 0.1) * found.capacity
        assert bulk / pace <= planned - age + 1
        assert backlog / pace <= planned + 1
        assert pace >= created
    assert judged > 200


def test_more_are_wanted_at_once_and_fewer_only_after_ten_minutes() -> None:
    needs: list[tuple[float, int]] = []
    assert settled(needs, 2, now=0.0, seconds=600.0) == 2
    assert settled(needs, 5, now=10.0, seconds=600.0) == 5
    for now in range(20, 611, 10):
        wanted = settled(needs, 1, now=float(now), seconds=600.0)
        assert wanted == (5 if now < 610 else 1), now
    assert settled(needs, 4, now=620.0, seconds=600.0) == 4


def test_the_memory_of_needs_is_bounded() -> None:
    needs: list[tuple[float, int]] = []
    for now in range(10_000):
        settled(needs, 3, now=float(now), seconds=600.0)
        assert len(needs) <= 3
    for now in range(10_000, 12_000):
        settled(needs, now % 3, now=float(now), seconds=600.0)
        assert len(needs) <= 602


def test_a_clock_that_was_set_back_does_not_keep_a_need_for_ever() -> None:
    needs = [(5000.0, 9)]
    assert settled(needs, 1, now=1000.0, seconds=600.0) == 1
