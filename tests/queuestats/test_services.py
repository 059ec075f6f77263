"""Counters that survive repeats, disorder and several executions."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.dashboard.queries.runs import agent_shares
from apps.jobs.states import RunState
from apps.queuestats.models import FailedRequest, RunCounter, Sample
from apps.queuestats.queries import CenterTotals, SeriesKey, center_totals, run_totals
from apps.queuestats.services import (
    LAST_REPORT_SECONDS,
    RejectedReport,
    counters,
    finalize_counters,
    series_ids,
    store_counters,
)
from tests.jobs.factories import NOW, make_run
from yardkit.protocol import CenterCounters, FailureNote, RunCounters

pytestmark = pytest.mark.django_db


def report(run: int, seq: int, *, boot: str = "b1", **counts: Any) -> RunCounters:
    return RunCounters(run=run, boot=boot, seq=seq, **counts)


@pytest.mark.covers("S1.17", "S1.19")
def test_left_is_total_minus_success_minus_failed() -> None:
    run = make_run()
    message = report(run.pk, 1, total=10, success=6, failed=1, queued=2, in_flight=1)
    store_counters(messages=[message], now=NOW)
    books = run_totals([run.owner])[run.owner]
    assert (books.total, books.success, books.failed, books.left) == (10, 6, 1, 3)
    assert books.balanced


@pytest.mark.covers("S1.51")
def test_repeats_and_disorder_change_nothing() -> None:
    run = make_run()
    reports = [
        report(run.pk, seq, total=seq * 2, success=seq, failures=[FailureNote(seq, "u", 0, "r")])
        for seq in range(1, 21)
    ]
    shuffled = reports * 3
    random.Random(7).shuffle(shuffled)
    for start in range(0, len(shuffled), 7):
        store_counters(messages=shuffled[start : start + 7], now=NOW)
    books = run_totals([run.owner])[run.owner]
    assert (books.total, books.success) == (40, 20)
    assert FailedRequest.objects.filter(owner=run.owner).count() == 20


@pytest.mark.covers("S1.51", "S1.57")
def test_times_and_failures_are_kept_by_agent_and_shown_as_means() -> None:
    run, older = make_run(), make_run()
    messages = [
        report(older.pk, 1, success=1, agents={"a": 1}),
        report(
            run.pk,
            1,
            success=3,
            agents={"a": 3, "b": 1},
            agent_failed={"b": 1},
            agent_ms={"a": 300, "b": 500},
            callback_ms=10,
        ),
    ]
    store_counters(messages=messages, now=NOW)
    assert run_totals([older.owner])[older.owner].mean_download_ms is None
    books = run_totals([run.owner])[run.owner]
    assert books.agent_failed == {"b": 1}
    assert books.agent_ms == {"a": 300, "b": 500}
    assert (books.mean_download_ms, books.mean_callback_ms) == (200.0, 10 / 3)
    a, b = agent_shares(books, [], NOW)
    assert (a.mean_ms, a.failed) == (100.0, 0)
    assert (b.mean_ms, b.failed) == (500.0, 1)


def test_the_executions_of_a_run_are_summed() -> None:
    run = make_run()
    messages = [
        report(run.pk, 9, total=5, success=5, agents={"a": 5}, final=False),
        report(run.pk, 3, boot="b2", total=7, success=6, failed=1, agents={"a": 2, "b": 5}),
    ]
    store_counters(messages=messages, now=NOW)
    books = run_totals([run.owner])[run.owner]
    assert (books.total, books.success, books.failed) == (12, 11, 1)
    assert books.agents == {"a": 7, "b": 5}


@pytest.mark.covers("S1.19")
def test_a_restarted_run_that_has_done_everything_has_nothing_left() -> None:
    run = make_run()
    cancelled = {"cancelled": 20, "final": True}
    first = report(
        run.pk, 9, total=400, success=269, queued=111, in_flight=20, sent=289, **cancelled
    )
    second = report(run.pk, 1, boot="b2", total=400, success=150, queued=250)
    store_counters(messages=[first], now=NOW)
    assert run_totals([run.owner])[run.owner].undone == 131
    store_counters(messages=[second], now=NOW)
    books = run_totals([run.owner])[run.owner]
    assert (books.total, books.success, books.left) == (669, 419, 250)
    second = report(run.pk, 2, boot="b2", total=400, success=400, final=True)
    store_counters(messages=[second], now=NOW)
    books = run_totals([run.owner])[run.owner]
    assert (books.total, books.success, books.left, books.undone) == (669, 669, 0, 0)
    assert books.requests_balanced


def test_items_by_field_are_summed_over_executions_and_cut() -> None:
    run = make_run()
    many = {f"field-{number}": number for number in range(300)}
    messages = [
        report(run.pk, 1, items=5, fields={"url": 4}),
        report(run.pk, 2, items=5, fields={"url": 5, "价格": 3}),
        report(run.pk, 1, boot="b2", items=2, fields={"url": 2}),
        report(run.pk, 1, boot="b3", items=300, fields=many),
    ]
    store_counters(messages=messages, now=NOW)
    fields = run_totals([run.owner])[run.owner].fields
    assert (fields["url"], fields["价格"], fields["field-7"]) == (7, 3, 7)
    assert len(fields) == 202


def test_a_report_of_no_run_is_handed_back_and_the_others_are_kept() -> None:
    run = make_run()
    strange = report(987654, 1, total=1)
    refused = store_counters(messages=[strange, report(run.pk, 1, total=1)], now=NOW)
    assert refused == [RejectedReport(strange, "run 987654 does not exist")]
    assert RunCounter.objects.count() == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"total": 2**63},
        {"seq": 2**64 - 1},
        {"run": 2**64 - 1},
        {"failures": [FailureNote(2**63, "u", 0, "r")]},
    ],
)
def test_a_report_that_no_database_holds_does_not_take_the_others_with_it(
    wrong: dict[str, Any],
) -> None:
    run, other = make_run(), make_run()
    bad = msgspec.structs.replace(report(run.pk, 1, total=1), **wrong)
    messages = [report(other.pk, 1, total=3), bad, report(other.pk, 2, total=5)]
    refused = store_counters(messages=messages, now=NOW)
    assert [one.message for one in refused] == [bad]
    assert refused[0].reason
    assert run_totals([other.owner])[other.owner].total == 5


def test_a_failure_with_an_impossible_status_is_kept() -> None:
    run = make_run()
    notes = [FailureNote(seq, "u", status, "r") for seq, status in enumerate((-1, 404, 2**31), 1)]
    store_counters(messages=[report(run.pk, 1, failures=notes)], now=NOW)
    kept = FailedRequest.objects.filter(owner=run.owner).values_list("status", flat=True)
    assert list(kept) == [0, 404, 0]


def test_what_a_stopped_run_left_is_undone() -> None:
    run = make_run(state=RunState.CANCELLED)
    message = report(run.pk, 4, total=10, success=6, failed=1, queued=2, in_flight=1, final=True)
    store_counters(messages=[message], now=NOW)
    books = run_totals([run.owner])[run.owner]
    assert books.total == books.success + books.failed + books.undone
    assert books.as_dict()["undone"] == 3


@pytest.mark.fault
def test_the_books_of_a_killed_run_are_closed_and_those_of_a_living_one_are_not() -> None:
    killed, alive = make_run(state=RunState.FAILED), make_run(state=RunState.RUNNING)
    for run in (killed, alive):
        message = report(run.pk, 1, total=10, success=6, queued=4)
        store_counters(messages=[message], now=NOW)
    assert finalize_counters(now=NOW + timedelta(seconds=LAST_REPORT_SECONDS - 1)) == 0
    later = NOW + timedelta(seconds=LAST_REPORT_SECONDS + 1)
    assert finalize_counters(now=later) == 1
    assert finalize_counters(now=later) == 0
    books = run_totals([killed.owner, alive.owner])
    assert (books[killed.owner].final, books[killed.owner].undone) == (True, 4)
    assert (books[alive.owner].final, books[alive.owner].undone) == (False, 0)
    # It was not dead after all: what it says counts.
    store_counters(messages=[report(killed.pk, 2, total=10, success=9, queued=1)], now=later)
    assert not run_totals([killed.owner])[killed.owner].final


ATTEMPTS: dict[str, Any] = {
    "sent": 60,
    "retried": 40,
    "returned": 50,
    "skipped": 20,
    "timed_out": 10,
    "refused": 5,
    "cancelled": 2,
    "out": 13,
    "held": 4,
}


@pytest.mark.covers("S1.19")
def test_every_attempt_is_in_one_place() -> None:
    run = make_run()
    counts: dict[str, Any] = {"total": 60, "success": 30, "failed": 10, "queued": 5}
    message = report(run.pk, 1, **counts, in_flight=15, **ATTEMPTS)
    store_counters(messages=[message], now=NOW)
    books = run_totals([run.owner])[run.owner]
    assert {name: getattr(books, name) for name in ATTEMPTS} == ATTEMPTS
    assert books.requests_balanced
    assert books.attempts_balanced
    assert books.balanced


@pytest.mark.parametrize(
    ("wrong", "requests", "attempts"),
    [
        ({"success": 29}, False, True),
        ({"total": 0, "success": 15, "failed": 5, "queued": -20}, False, True),
        ({"returned": 49}, True, False),
        ({"out": 12}, True, False),
        ({"held": 14}, True, False),
        ({"held": -1}, True, False),
    ],
)
def test_books_that_do_not_add_up_say_so(
    wrong: dict[str, int], requests: bool, attempts: bool
) -> None:
    run = make_run()
    counts: dict[str, Any] = {"total": 60, "success": 30, "failed": 10, "queued": 5}
    counts["in_flight"] = 15
    message = report(run.pk, 1, **(counts | ATTEMPTS | wrong))
    store_counters(messages=[message], now=NOW)
    books = run_totals([run.owner])[run.owner]
    assert (books.requests_balanced, books.attempts_balanced) == (requests, attempts)
    assert not books.balanced


def test_what_was_out_when_a_later_execution_began_is_cancelled() -> None:
    run = make_run()
    first = report(run.pk, 9, total=5, in_flight=5, sent=5, retried=2, timed_out=3, out=4, held=1)
    later = report(run.pk, 1, boot="b2", total=2, in_flight=2, sent=2, out=2, held=1)
    store_counters(messages=[first], now=NOW)
    before = run_totals([run.owner])[run.owner]
    assert (before.out, before.held, before.cancelled) == (4, 1, 0)
    store_counters(messages=[later], now=NOW)
    books = run_totals([run.owner])[run.owner]
    assert (books.out, books.held, books.cancelled, books.sent) == (2, 1, 4, 7)
    assert books.balanced


@pytest.mark.fault
def test_what_was_out_when_a_run_was_killed_is_cancelled() -> None:
    run = make_run(state=RunState.FAILED)
    message = report(run.pk, 1, total=9, in_flight=9, sent=9, cancelled=2, out=7, held=3)
    store_counters(messages=[message], now=NOW)
    assert finalize_counters(now=NOW + timedelta(seconds=LAST_REPORT_SECONDS + 1)) == 1
    books = run_totals([run.owner])[run.owner]
    assert (books.out, books.held, books.cancelled) == (0, 0, 9)
    assert books.attempts_balanced


@pytest.mark.parametrize(
    ("wrong", "balanced"),
    [
        ({}, True),
        ({"held": 3}, False),
        ({"received": 8}, False),
        ({"received": 12, "held": -1}, False),
    ],
)
def test_the_centers_books_balance_or_do_not(wrong: dict[str, int], balanced: bool) -> None:
    run = make_run()
    counts = {"received": 15, "dispatched": 5, "skipped": 4, "expired": 3, "refused": 1, "held": 2}
    message = CenterCounters(run=run.pk, boot="c1", seq=1, **(counts | wrong))
    store_counters(messages=[message], now=NOW)
    assert center_totals([run.owner])[run.owner].balanced is balanced


def test_the_centers_counts_are_summed_over_centers() -> None:
    run = make_run()
    messages = [
        CenterCounters(run=run.pk, boot="c1", seq=1, received=3, dispatched=3),
        CenterCounters(run=run.pk, boot="c1", seq=2, received=5, dispatched=4, expired=1),
        CenterCounters(run=run.pk, boot="c2", seq=1, received=2, skipped=2),
    ]
    store_counters(messages=messages, now=NOW)
    books = center_totals([run.owner, "run:0"])
    expected = CenterTotals(received=7, dispatched=4, skipped=2, expired=1, reported=True)
    assert books == {run.owner: expected, "run:0": CenterTotals()}


def test_pages_are_told_of_what_a_center_says_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, Any]] = []
    monkeypatch.setattr(counters, "emit", lambda kind, *, project, payload: told.append(payload))
    run, other = make_run(), make_run()
    messages: list[Any] = [
        report(other.pk, 1, total=2, queued=2),
        CenterCounters(run=run.pk, boot="c1", seq=1, received=3, held=3),
    ]
    store_counters(messages=messages, now=NOW)
    payloads = {payload["run"]: payload for payload in told}
    assert len(told) == len(payloads) == 2
    assert (payloads[run.pk]["center"]["held"], payloads[run.pk]["total"]) == (3, 0)
    assert (payloads[other.pk]["center"]["reported"], payloads[other.pk]["total"]) == (False, 2)


def test_an_owner_that_never_reported_has_empty_books() -> None:
    books = run_totals(["run:1"])["run:1"]
    assert not books.reported
    assert books.left == 0


def test_a_thousand_reports_cost_as_many_statements_as_one() -> None:
    def statements(seq: int, runs: list[Any]) -> int:
        with CaptureQueriesContext(connection) as captured:
            store_counters(
                messages=[report(run.pk, seq, total=9 * seq, success=8 * seq) for run in runs],
                now=NOW + timedelta(seconds=seq),
            )
        return len([each for each in captured if "SAVEPOINT" not in each["sql"]])

    runs = [make_run() for _ in range(6)]
    statements(1, runs)
    statements(2, runs[:1])
    assert statements(3, runs) == statements(4, runs[:1]) <= 9


def test_a_series_that_was_deleted_by_another_process_is_made_again() -> None:
    run = make_run()
    store_counters(messages=[report(run.pk, 1, total=5, success=5)], now=NOW)
    key = SeriesKey("run.requests", run.job.project_id, str(run.pk))
    known = series_ids._cache.of(connection.connection)
    known[key] = 987654
    store_counters(messages=[report(run.pk, 2, total=9, success=9)], now=NOW)
    values = Sample.objects.filter(series__name="run.requests", step=3600)
    assert sum(values.values_list("value", flat=True)) == 9.0
    assert key not in series_ids._cache.of(connection.connection)


def test_ids_of_what_may_be_rolled_back_are_not_remembered() -> None:
    run = make_run()
    store_counters(messages=[report(run.pk, 1, total=5, success=5)], now=NOW)
    assert series_ids._cache.of(connection.connection) == {}
