"""The table of allowed transitions of a routed item."""

from __future__ import annotations

import pytest

from apps.routing.engine import outcomes
from apps.routing.states import ACTIVE, FINAL, MOVES, TONES, ItemState, may_move


def test_every_state_has_its_moves_and_no_final_state_is_left() -> None:
    assert set(MOVES) == set(TONES) == set(ItemState)
    assert set(ItemState) == ACTIVE | FINAL
    assert not ACTIVE & FINAL
    for sources in MOVES.values():
        assert not sources & FINAL


def test_the_engine_has_the_same_states() -> None:
    assert [state.value for state in ItemState] == [state.value for state in outcomes.TaskState]
    assert {state.value for state in FINAL} == {state.value for state in outcomes.FINAL}
    assert {state.value for state in ACTIVE} == {state.value for state in outcomes.ACTIVE}


@pytest.mark.parametrize("state", sorted(ACTIVE))
def test_every_active_state_can_reach_a_final_one(state: ItemState) -> None:
    assert any(may_move(state, final) for final in FINAL)


def test_every_state_can_be_reached() -> None:
    reached, waiting = set(), [ItemState.RECEIVED]
    while waiting:
        state = waiting.pop()
        if state not in reached:
            reached.add(state)
            waiting += [to for to in ItemState if may_move(state, to)]
    assert reached == set(ItemState)


def test_only_what_was_sent_expires_and_only_what_was_not_is_rejected() -> None:
    assert MOVES[ItemState.EXPIRED] == {ItemState.DISPATCHED}
    assert MOVES[ItemState.REJECTED] == {ItemState.RECEIVED, ItemState.PARKED}
