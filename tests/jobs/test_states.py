"""The table of moves."""

from __future__ import annotations

import pytest

from apps.jobs.states import ACTIVE, FINAL, MOVES, RunState, may_move


def test_every_state_has_its_moves_and_no_final_state_is_left() -> None:
    assert set(MOVES) == set(RunState)
    assert set(RunState) == ACTIVE | FINAL
    assert not ACTIVE & FINAL
    for sources in MOVES.values():
        assert not sources & FINAL


@pytest.mark.parametrize("state", sorted(ACTIVE))
def test_every_active_state_can_reach_a_final_one(state: RunState) -> None:
    assert any(may_move(state, final) for final in FINAL)


def test_a_queued_run_can_only_be_started_or_cancelled() -> None:
    assert {to for to in RunState if may_move(RunState.QUEUED, to)} == {
        RunState.STARTING,
        RunState.CANCELLED,
    }
