"""Items whose outbound is full, slow, disabled or gone."""

from __future__ import annotations

import pytest

from apps.routing.engine.life import KnownItem, Life
from apps.routing.engine.messages import Counters
from apps.routing.engine.outcomes import Action, Reason, TaskState
from apps.routing.engine.rules import Outbound, Overflow
from tests.routing.engine.decisions import known, life, log, outbound
from tests.routing.engine.test_life import NEW, short

# --- no result in time ----------------------------------------------------------------------------


def test_without_a_result_it_is_sent_again_and_at_last_expires() -> None:
    rules = life([outbound("a", retry_limits=1, failback="b"), outbound("b")], NEW, set())
    again = rules.timed_out(known("a"))
    assert short(again) == ("dispatch", "retrying", "retry", "a", (1, 1, 1))
    assert short(rules.timed_out(known("a", 1, 1, 1))) == (
        "end",
        "expired",
        "no_result",
        "a",
        (1, 1, 1),
    )


@pytest.mark.parametrize("state", sorted(set(TaskState) - {TaskState.DISPATCHED}))
def test_only_what_was_sent_can_time_out(state: TaskState) -> None:
    decision = life([outbound("a", retry_limits=1)], NEW).timed_out(known("a", state=state))
    assert short(decision) == ("ignore", state.value, "not_waiting", "a", (1, 0, 0))


def test_a_time_out_at_an_outbound_that_is_gone_asks_the_rules() -> None:
    rules = life([outbound("b")], NEW)
    assert short(rules.timed_out(known("a"))) == (
        "dispatch",
        "retrying",
        "outbound_gone",
        "b",
        (2, 0, 1),
    )
    assert life([outbound("b")], set()).timed_out(known("a")).state is TaskState.EXPIRED
    spent = life([outbound("b")], NEW, limits=1).timed_out(known("a"))
    assert (spent.state, spent.reason) == (TaskState.EXPIRED, Reason.ROUTING_LIMITS)


# --- disabled, gone -------------------------------------------------------------------------------

OFF = outbound("a", retry_limits=2, disable=True)


def test_no_rule_leads_to_a_disabled_outbound() -> None:
    assert life([OFF, outbound("b")], NEW, NEW).decide({}, None).outbound == "b"
    assert life([OFF], NEW).decide({}, None).state is TaskState.REJECTED


def test_a_retry_at_a_disabled_outbound_goes_to_its_failback() -> None:
    off = outbound("a", retry_limits=2, disable=True, failback="b")
    rules = life([off, outbound("b"), outbound("c")], NEW, set(), {"1"})
    for decision in (rules.decide(log(1), known("a")), rules.timed_out(known("a"))):
        assert short(decision) == ("dispatch", "retrying", "failback", "b", (2, 0, 1))


def test_a_retry_at_a_disabled_outbound_without_one_goes_by_the_rules() -> None:
    rules = life([OFF, outbound("c")], NEW | {"1"}, {"1"})
    decision = rules.decide(log(1), known("a"))
    assert short(decision) == ("dispatch", "retrying", "outbound_disabled", "c", (2, 0, 1))
    ended = life([OFF], NEW | {"1"}).decide(log(1), known("a"))
    assert (ended.state, ended.reason) == (TaskState.FAILED, Reason.NO_RULE)


def test_a_disabled_outbound_still_says_when_it_is_over() -> None:
    rules = life([OFF, outbound("c")], NEW, {"1"})
    assert rules.decide(log(1), known("a", 1, 2, 2)).reason is Reason.RETRY_LIMITS
    assert rules.decide(log(1000), known("a")).state is TaskState.SUCCEEDED


@pytest.mark.parametrize(
    "failback", [outbound("b", disable=True), outbound("x"), None], ids=["disabled", "gone", "self"]
)
def test_a_failback_that_takes_nothing_is_none(failback: Outbound | None) -> None:
    a = outbound(
        "a",
        failback="b" if failback else "a",
        dont_retry_status=(404,),
        direct_failback_status=(503,),
    )
    rules = life([a, outbound("c"), *([failback] if failback else [])], NEW, {"404"}, set())
    assert rules.decide(log(1), known("a")).reason is Reason.RETRY_LIMITS
    assert rules.decide(log(503), known("a")).reason is Reason.NO_FAILBACK
    assert rules.decide(log(404), known("a")).reason is Reason.ROUTED_AGAIN


def test_a_failure_of_an_outbound_that_is_gone_asks_the_rules() -> None:
    rules = life([outbound("b")], {"1"})
    assert short(rules.decide(log(1), known("a"))) == (
        "dispatch",
        "retrying",
        "outbound_gone",
        "b",
        (2, 0, 1),
    )
    assert rules.decide(log(2), known("a")).state is TaskState.FAILED
    assert rules.decide(log(1000), known("a")).state is TaskState.SUCCEEDED


# --- full (seed S2.38) ----------------------------------------------------------------------------


def crowded(overflow: Overflow, *full: str) -> Life:
    """Return the logic for three outbounds for new items and for status 1, some of them full."""
    outbounds = [
        outbound("a", retry_limits=1, overflow=overflow, dont_retry_status=(1,)),
        outbound("b", retry_limits=1, overflow=overflow),
        outbound("c", reset_retry_times=True),
    ]
    return life(outbounds, {"new", "1"}, {"new", "1"}, {"new", "1"}, full=full)


@pytest.mark.covers("S2.38")
def test_an_item_waits_for_room_when_its_outbound_says_so() -> None:
    assert short(crowded(Overflow.HOLD, "a").decide({}, None)) == (
        "hold",
        "parked",
        "queue_full",
        "a",
        (1, 0, 0),
    )


@pytest.mark.covers("S2.38")
def test_an_item_goes_to_the_next_that_takes_it() -> None:
    assert short(crowded(Overflow.NEXT, "a").decide({}, None)) == (
        "dispatch",
        "received",
        "next",
        "b",
        (1, 0, 0),
    )
    assert crowded(Overflow.NEXT, "a", "b").decide({}, None).outbound == "c"
    # The last one says hold.
    held = crowded(Overflow.NEXT, "a", "b", "c").decide({}, None)
    assert (held.action, held.outbound) == (Action.HOLD, "c")


@pytest.mark.covers("S2.38")
def test_an_item_fails_when_its_outbound_says_so() -> None:
    decision = crowded(Overflow.FAIL, "a").decide({}, None)
    assert short(decision) == ("end", "failed", "overflow", "a", (0, 0, 0))


def test_without_a_next_it_waits_for_the_first() -> None:
    rules = life([outbound("a", overflow=Overflow.NEXT)], NEW, full=["a"])
    assert short(rules.decide({}, None)) == ("hold", "parked", "queue_full", "a", (1, 0, 0))


def test_a_retry_that_goes_to_the_next_is_a_routing() -> None:
    rules = crowded(Overflow.NEXT, "b")
    # The rules are asked for what takes status 1; the full one is passed over.
    decision = rules.decide(log(1), known("b", 1, 0, 0))
    assert short(decision) == ("dispatch", "retrying", "next", "a", (2, 0, 1))
    held = crowded(Overflow.HOLD, "b").decide(log(1), known("b", 1, 0, 0))
    assert short(held) == ("hold", "parked", "queue_full", "b", (1, 1, 1))
    # Refused by a, and b is full: a is not asked again.
    assert rules.decide(log(1), known("a")).outbound == "c"


def test_with_no_routing_left_there_is_no_next() -> None:
    a = outbound("a", retry_limits=1, overflow=Overflow.NEXT)
    rules = life([a, outbound("b")], {"1"}, {"1"}, full=["a"], limits=1)
    assert short(rules.decide(log(1), known("a"))) == (
        "hold",
        "parked",
        "queue_full",
        "a",
        (1, 1, 1),
    )


# --- parked ---------------------------------------------------------------------------------------


def parked(at: str = "a", *counters: int) -> KnownItem:
    """Return an item that waits for room."""
    return known(at, *counters, state=TaskState.PARKED)


def test_a_parked_item_is_sent_when_there_is_room() -> None:
    assert short(crowded(Overflow.HOLD, "a").offer(parked())) == (
        "hold",
        "parked",
        "queue_full",
        "a",
        (1, 0, 0),
    )
    assert short(crowded(Overflow.HOLD).offer(parked("a", 2, 1, 3))) == (
        "dispatch",
        "parked",
        "room",
        "a",
        (2, 1, 3),
    )


def test_a_parked_item_whose_outbound_is_gone_is_routed_anew_without_counting_twice() -> None:
    rules = life([outbound("b")], NEW, limits=1)
    decision = rules.offer(parked())
    assert short(decision) == ("dispatch", "parked", "outbound_gone", "b", (1, 0, 0))
    assert decision.item == parked().item
    full = life([outbound("b")], NEW, limits=1, full=["b"]).offer(parked())
    assert (full.action, full.outbound, full.counters) == (Action.HOLD, "b", Counters(1, 0, 0))


def test_a_parked_item_that_nothing_takes_any_more() -> None:
    rules = life([outbound("b")], set())
    assert short(rules.offer(parked())) == ("end", "rejected", "no_rule", "a", (1, 0, 0))
    assert rules.offer(parked("a", 1, 1, 1)).state is TaskState.FAILED


def test_a_parked_item_waits_for_a_disabled_outbound_while_no_other_takes_it() -> None:
    waits = life([OFF], NEW).offer(parked())
    assert short(waits) == ("hold", "parked", "outbound_disabled", "a", (1, 0, 0))
    goes = life([OFF, outbound("b")], NEW, NEW).offer(parked())
    assert short(goes) == ("dispatch", "parked", "outbound_disabled", "b", (1, 0, 0))


@pytest.mark.parametrize("state", sorted(set(TaskState) - {TaskState.PARKED}))
def test_only_what_is_parked_is_offered(state: TaskState) -> None:
    decision = crowded(Overflow.HOLD).offer(known("a", state=state))
    assert (decision.action, decision.state) == (Action.IGNORE, state)
    assert decision.reason is Reason.NOT_PARKED
