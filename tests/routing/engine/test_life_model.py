"""Property test: each sequence of results ends within the limits and agrees with the model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.routing.engine.items import check_item
from apps.routing.engine.life import KnownItem
from apps.routing.engine.outcomes import FINAL, Action, Decision, TaskState
from apps.routing.engine.rules import Outbound, Overflow
from apps.routing.states import ItemState, may_move
from tests.routing.engine.decisions import UUID, StatusMatcher, after, life, life_by, outbound, told
from tests.routing.engine.life_model import Model

NAMES = ("a", "b", "c", "d")
STATUSES = ("1", "2", "404", "503", "1000")
SETS = st.sets(st.sampled_from(STATUSES[:4]), max_size=2)


@st.composite
def outbounds(draw: st.DrawFn) -> list[Outbound]:
    """Generate up to four outbounds, some disabled, some with missing failbacks."""
    return [
        outbound(
            name,
            retry_limits=draw(st.integers(-1, 3)),
            failback=draw(st.sampled_from(["", *NAMES])),
            dont_retry_status=tuple(draw(SETS)),
            direct_failback_status=tuple(int(status) for status in draw(SETS)),
            reset_retry_times=draw(st.booleans()),
            disable=draw(st.integers(0, 4)) == 0,
            overflow=draw(st.sampled_from(Overflow)),
            task_params_wrapped=draw(st.booleans()),
        )
        for name in NAMES[: draw(st.integers(1, 4))]
    ]


TAKES = st.lists(st.sets(st.sampled_from(["new", *STATUSES])), min_size=4, max_size=4)
LIMITS = st.integers(-1, 6)


@pytest.mark.slow("2 s")
@settings(deadline=None)
@given(outbounds(), TAKES, LIMITS, st.lists(st.sampled_from(STATUSES), min_size=1, max_size=5))
def test_the_engine_decides_as_the_second_opinion_does(
    there: list[Outbound], takes: list[set[str]], limits: int, statuses: list[str]
) -> None:
    takes = takes[: len(there)]
    rules = life_by(StatusMatcher(*takes), there, limits=limits, terminal_codes=(1000,))
    model = Model(there, list(takes), 100 if limits < 0 else limits, {"1000"})
    decision = rules.decide({"x": 1}, None)
    model.begin()
    turn = 0
    while not model.ended:
        assert decision.action is Action.DISPATCH
        counters = decision.counters
        assert decision.outbound == model.at
        assert (counters.routed_count, counters.retry_times, counters.group_retry_times) == (
            model.routed,
            model.retries,
            model.attempts,
        )
        status = statuses[turn % len(statuses)]
        turn += 1
        ledger = after(decision)
        decision = rules.decide({"task_uuid": UUID, "task_result": status}, ledger)
        model.result(status)
        assert decision.text
    assert (decision.action, decision.state.value) == (Action.END, model.ended)


# What may happen to an item that is on its way: a result, as this or that spider hands it back, or
# none at all; and what may happen to the outbounds meanwhile.
EVENTS = st.sampled_from(["log", "echo", "wrapped", "silent", "forged", "stale", "time-out"])


@pytest.mark.slow("2 s")
@settings(deadline=None)
@given(
    outbounds(),
    TAKES,
    LIMITS,
    st.lists(
        st.tuples(EVENTS, st.sampled_from(STATUSES[:4]), st.sets(st.sampled_from(NAMES))),
        min_size=1,
        max_size=8,
    ),
    st.integers(1, 30),
)
def test_every_way_ends_within_the_limits(
    there: list[Outbound],
    takes: list[set[str]],
    limits: int,
    events: list[tuple[str, str, set[str]]],
    vanishes_at: int,
) -> None:
    takes = takes[: len(there)]
    by_name = {found.name: found for found in there}
    most_routings = 100 if limits < 0 else limits
    # A retry for each that is allowed at each routing, and the sending of the routing itself.
    most_sent = most_routings * (1 + max(0, *(found.retry_limits for found in there), 0))
    sent, turn = 0, 0
    ledger: KnownItem | None = None
    decision = life(there, *takes, limits=limits).decide({"x": 1, "routed_count": -5}, None)
    while decision.state not in FINAL:
        check_item(decision.item)
        assert decision.counters.routed_count <= most_routings
        assert ledger is None or may_move(ledger.state, ItemState(decision.state.value))
        sent += decision.action is Action.DISPATCH
        assert sent <= most_sent
        if decision.action is not Action.IGNORE:
            ledger = after(decision)
        assert ledger is not None
        event, status, full = events[turn % len(events)]
        turn += 1
        # Later on the first outbound is gone, and the queues have room at last.
        gone = turn >= vanishes_at
        rules = life(
            there[1:] if gone else there,
            *(takes[1:] if gone else takes),
            full=() if turn > 60 else full,
            limits=limits,
        )
        decision = happened(rules, ledger, event, status, by_name)
        assert turn < 70 + 8 * (most_sent + 1)
    assert decision.action is Action.END
    assert ledger is None or may_move(ledger.state, ItemState(decision.state.value))


def happened(
    rules: Any, ledger: KnownItem, event: str, status: str, by_name: dict[str, Outbound]
) -> Decision:
    """Return the decision about an item after this event."""
    if ledger.state is TaskState.PARKED:
        decision: Decision = rules.offer(ledger)
        return decision
    if event == "time-out":
        expired: Decision = rules.timed_out(ledger)
        return expired
    message = told(by_name[ledger.outbound], ledger)
    number = ledger.counters.group_retry_times
    back: dict[str, Any] = {
        "log": {"task_params": message},
        "echo": message,
        "wrapped": message | {"task_params": {"group_retry_times": "none of it"}},
        "silent": {},
        "forged": {"routed_count": 0, "retry_times": -7, "outbound": "z"},
        "stale": {"group_retry_times": number - 1},
    }[event]
    result = back | {"task_uuid": UUID, "task_result": status}
    if event == "stale" and number > 0:
        ignored: Decision = rules.decide(result, ledger)
        assert ignored.action is Action.IGNORE
        assert replace(ignored, item={}).counters == ledger.counters
        # The attempt that is on its way answers as well.
        result["group_retry_times"] = number
    answered: Decision = rules.decide(result, ledger)
    return answered
