"""Decisions about an item line by line as in the seed, and cases that the seed leaves open."""

from __future__ import annotations

from typing import Any

import pytest

from apps.routing.engine.life import (
    KnownItem,
    carried_counters,
    expects_result,
    status_text,
    uuid_of,
)
from apps.routing.engine.messages import Counters
from apps.routing.engine.outcomes import FINAL, TEXTS, Action, Decision, Reason, TaskState
from apps.routing.engine.rules import MOST_ROUTINGS
from tests.routing.engine.decisions import UUID, StatusMatcher, known, life, life_by, log, outbound

NEW = {"new"}


def short(decision: Decision) -> tuple[Any, ...]:
    """Return a decision as a row of a table."""
    assert decision.text
    return (
        decision.action.value,
        decision.state.value,
        decision.reason.value,
        decision.outbound,
        (
            decision.counters.routed_count,
            decision.counters.retry_times,
            decision.counters.group_retry_times,
        ),
    )


# A retries twice, wants no retry of 404, and sends 503 straight to B, its failback. B retries
# once and has no failback. C takes what is 404, D what is new but never gets it.
A = outbound(
    "a", retry_limits=2, failback="b", dont_retry_status=(404, "410"), direct_failback_status=(503,)
)
B = outbound("b", retry_limits=1, dont_retry_status=("404",), direct_failback_status=(503,))
C = outbound("c", reset_retry_times=True)
D = outbound("d")
TAKES = (NEW, set(), {"404", "410"}, NEW)

TABLE: list[tuple[str, Any, KnownItem | None, tuple[Any, ...]]] = [
    # S2.33
    ("new", {"x": 1}, None, ("dispatch", "received", "matched", "a", (1, 0, 0))),
    ("no rule", log(999), None, ("end", "rejected", "no_rule", "", (0, 0, 0))),
    # S2.34
    ("terminal", log(1000), known("a"), ("end", "succeeded", "terminal", "a", (1, 0, 0))),
    ("as text", log("1000"), known("a"), ("end", "succeeded", "terminal", "a", (1, 0, 0))),
    ("text rule", log(1101), known("b"), ("end", "succeeded", "terminal", "b", (1, 0, 0))),
    # S2.35 (1)
    ("retry", log(1), known("a"), ("dispatch", "retrying", "retry", "a", (1, 1, 1))),
    ("last retry", log(1), known("a", 1, 1, 1), ("dispatch", "retrying", "retry", "a", (1, 2, 2))),
    # S2.35 (2): no retries left
    ("failback", log(1), known("a", 1, 2, 2), ("dispatch", "retrying", "failback", "b", (2, 2, 3))),
    # S2.35 (2) before (3): the failback is asked first
    ("404 at a", log(404), known("a"), ("dispatch", "retrying", "failback", "b", (2, 0, 1))),
    # S2.37
    ("503 at a", log("503"), known("a"), ("dispatch", "retrying", "failback", "b", (2, 0, 1))),
    # S2.35 (3), S2.36
    ("404 at b", log(404), known("b"), ("dispatch", "retrying", "routed_again", "c", (2, 0, 1))),
    # S2.35 (4)
    ("no more", log(1), known("b", 1, 1, 1), ("end", "failed", "retry_limits", "b", (1, 1, 1))),
    ("503 at b", log(503), known("b"), ("end", "failed", "no_failback", "b", (1, 0, 0))),
    ("no retry", log(1), known("c"), ("end", "failed", "retry_limits", "c", (1, 0, 0))),
]


@pytest.mark.covers("S2.33", "S2.34", "S2.35", "S2.36", "S2.37", "S2.38")
@pytest.mark.parametrize(
    ("item", "ledger", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_the_life_of_a_task(item: Any, ledger: KnownItem | None, expected: tuple[Any, ...]) -> None:
    assert short(life([A, B, C, D], *TAKES).decide(item, ledger)) == expected


@pytest.mark.covers("S2.36")
def test_the_outbound_that_refused_is_not_asked_again() -> None:
    refuses = outbound("a", retry_limits=9, dont_retry_status=(404,))
    rules = life([refuses, outbound("b")], {"404", "new"}, {"404"})
    assert rules.decide(log(404), known("a")).outbound == "b"
    alone = life([refuses], {"404", "new"})
    assert short(alone.decide(log(404), known("a"))) == ("end", "failed", "no_rule", "a", (1, 0, 0))


@pytest.mark.covers("S2.31")
def test_retries_start_again_where_the_next_outbound_says_so() -> None:
    b = outbound("b", retry_limits=1, reset_retry_times=True)
    rules = life([A, b], NEW, set())
    moved = rules.decide(log(1), known("a", 1, 2, 2))
    assert (moved.outbound, moved.counters) == ("b", Counters(2, 0, 3))
    again = rules.decide(log(1), known("b", 2, 0, 3))
    assert short(again) == ("dispatch", "retrying", "retry", "b", (2, 1, 4))
    # Where it does not, those at the first outbound count.
    kept = life([A, outbound("b", retry_limits=2)], NEW, set())
    assert kept.decide(log(1), known("b", 2, 2, 3)).reason is Reason.RETRY_LIMITS


@pytest.mark.covers("S2.38", "S2.11")
@pytest.mark.parametrize(("limits", "most"), [(-1, MOST_ROUTINGS), (3, 3), (0, 0), (10**6, 100)])
def test_routings_are_bounded(limits: int, most: int) -> None:
    circle = [outbound("a", dont_retry_status=(404,)), outbound("b", dont_retry_status=(404,))]
    rules = life(circle, {"new", "404"}, {"404"}, limits=limits)
    decision, routings = rules.decide({"x": 1}, None), 0
    while decision.action is Action.DISPATCH:
        routings += 1
        ledger = KnownItem(UUID, TaskState.DISPATCHED, decision.outbound, decision.counters)
        decision = rules.decide(log(404), ledger)
    assert routings == most
    assert (decision.state, decision.reason) == (TaskState.FAILED, Reason.ROUTING_LIMITS)


def test_failbacks_in_a_circle_are_routings_too() -> None:
    rules = life([outbound("a", failback="b"), outbound("b", failback="a")], NEW, set(), limits=2)
    assert rules.decide(log(1), known("a")).outbound == "b"
    assert rules.decide(log(1), known("b", 2, 0, 1)).reason is Reason.ROUTING_LIMITS


# --- what is a result -----------------------------------------------------------------------------


@pytest.mark.parametrize("nothing", [None, "", " ", True, False, [], {}, [1000]])
def test_a_known_uuid_without_a_result_is_a_new_item(nothing: Any) -> None:
    decision = life([A, B, C, D], *TAKES).decide(log(nothing), known("a", 5, 1, 1))
    assert decision.is_new
    # Whose child it is, is kept; its uuid is another.
    assert decision.origin == UUID
    assert decision.counters == Counters(1, 0, 0)


def test_an_unknown_uuid_is_a_new_item_whatever_its_result() -> None:
    rules = life([A], {"1000"})
    decision = rules.decide(log(1000, task_params={"x": 1}), None)
    assert (decision.action, decision.is_new, decision.origin) == (Action.DISPATCH, True, UUID)
    assert rules.decide({"task_result": 1000}, None).origin is None


def test_a_derived_item_goes_on_counting_the_routings_of_its_chain() -> None:
    decision = life([A], NEW, limits=5).decide(
        {"routed_count": 4, "retry_times": 2, "task_params": {"group_retry_times": "7"}}, None
    )
    assert decision.counters == Counters(5, 0, 7)
    ended = life([A], NEW, limits=5).decide({"routed_count": 5}, None)
    assert short(ended) == ("end", "failed", "routing_limits", "", (5, 0, 0))


def test_counters_are_the_larger_of_both() -> None:
    rules = life([A, B, C, D], *TAKES)
    # The spider says less than the ledger knows of the same attempt, or more.
    said = log(1, routed_count=0, retry_times=0, group_retry_times=1)
    assert rules.decide(said, known("a", 3, 1, 1)).counters == Counters(3, 2, 2)
    said = log(1, routed_count=9, retry_times=2, group_retry_times=4)
    assert rules.decide(said, known("a", 3, 1, 1)).counters == Counters(10, 2, 5)


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (3, 3),
        ("3", 3),
        (-1, 0),
        (True, 0),
        (None, 0),
        (2.5, 0),
        ("x", 0),
        ("-3", 0),
        ([3], 0),
        (10**18, 2**31 - 1),
        ("9" * 5000, 0),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_what_is_no_count_is_none(value: Any, count: int) -> None:
    assert carried_counters({"retry_times": value}) == Counters(0, count, 0)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1000, "1000"),
        ("1000", "1000"),
        (1000.0, "1000"),
        (" 1000 ", "1000"),
        (-1, "-1"),
        (0, "0"),
        ("ok", "ok"),
        (1.5, "1.5"),
        ("", None),
        (None, None),
        (True, None),
        ({}, None),
    ],
)
def test_statuses_are_compared_as_texts(value: Any, text: str | None) -> None:
    assert status_text(value) == text


def test_a_uuid_is_a_text_of_some_length() -> None:
    assert uuid_of({"task_uuid": UUID}) == UUID
    assert uuid_of({"task_params": {"task_uuid": UUID}}) == UUID
    for wrong in (None, "", 7, [UUID], "x" * 65):
        assert uuid_of({"task_uuid": wrong}) is None


# --- results that come too late -------------------------------------------------------------------


@pytest.mark.parametrize("state", sorted(FINAL))
@pytest.mark.parametrize("status", [1000, 1])
def test_what_has_ended_stays_ended(state: TaskState, status: int) -> None:
    decision = life([A, B, C, D], *TAKES).decide(log(status), known("a", state=state))
    assert short(decision) == ("ignore", state.value, "late_result", "a", (1, 0, 0))


def test_a_failure_of_an_earlier_attempt_is_ignored_and_a_success_of_it_is_one() -> None:
    rules = life([A, B, C, D], *TAKES)
    ledger = known("a", 1, 1, 1, item={"a": 1})
    early = rules.decide(log(1, group_retry_times=0, b=2), ledger)
    assert short(early) == ("ignore", "dispatched", "stale_result", "a", (1, 1, 1))
    assert early.item == {"a": 1}
    assert rules.decide(log(1000, group_retry_times=0), ledger).state is TaskState.SUCCEEDED


def test_results_of_an_item_that_is_parked() -> None:
    rules = life([A, B, C, D], *TAKES)
    parked = known("a", 1, 1, 1, state=TaskState.PARKED)
    assert rules.decide(log(1), parked).reason is Reason.STALE_RESULT
    assert rules.decide(log(1, group_retry_times=0), parked).reason is Reason.STALE_RESULT
    assert rules.decide(log(1000), parked).state is TaskState.SUCCEEDED
    # What is no number says no more than nothing does.
    assert rules.decide(log(1, group_retry_times="x"), parked).reason is Reason.STALE_RESULT
    assert rules.decide(log(1, group_retry_times="x"), known("a", 1, 1, 1)).reason is Reason.RETRY
    # It was sent, and answered before that was written.
    assert rules.decide(log(1, group_retry_times=1), parked).reason is Reason.RETRY


# --- what rules see afterwards --------------------------------------------------------------------


def test_rules_see_what_the_item_had_what_came_back_and_what_the_ledger_knows() -> None:
    table = StatusMatcher(NEW, {"404"})
    rules = life_by(table, [outbound("a", dont_retry_status=(404,)), outbound("b")])
    ledger = known("a", 2, 1, 3, item={"detail_url": "u", "rt": True, "task_result": 1})
    decision = rules.decide(log("404", company_key="k", outbound="forged", rt=False), ledger)
    assert table.seen == [decision.item]
    assert decision.item == {
        "detail_url": "u",
        "rt": True,
        "task_result": "404",
        "company_key": "k",
        "outbound": "a",
        "routed_count": 2,
        "retry_times": 1,
        "submitter": "taskhub",
        "task_uuid": UUID,
        "group_retry_times": 3,
    }
    assert ledger.item == {"detail_url": "u", "rt": True, "task_result": 1}


# --- delivery -------------------------------------------------------------------------------------


def test_delivery_is_the_end_where_no_result_is_expected() -> None:
    decision = life([A], NEW).decide({"x": 1}, None)
    assert short(decision.delivered(expects_result=True)) == (
        "wait",
        "dispatched",
        "sent",
        "a",
        (1, 0, 0),
    )
    assert short(decision.delivered(expects_result=False)) == (
        "end",
        "succeeded",
        "delivered",
        "a",
        (1, 0, 0),
    )


def test_an_outbound_answers_as_its_class_does_unless_it_says_otherwise() -> None:
    assert expects_result(outbound("a"), True)
    assert not expects_result(outbound("a"), False)
    assert expects_result(outbound("a", expects_result=True), False)
    assert not expects_result(outbound("a", expects_result=False), True)


def test_every_reason_has_a_text() -> None:
    assert set(TEXTS) == set(Reason)
    for text in TEXTS.values():
        assert text % {"outbound": "o", "status": "1"}
