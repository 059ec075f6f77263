"""A position is committed only after all earlier positions are done."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.routing.engine.inbounds.contiguous import Contiguous


@pytest.mark.slow("2 s")
@settings(deadline=None)
@given(st.data())
def test_safe_never_passes_an_unfinished_position_and_always_moves_on(data: st.DataObject) -> None:
    log = Contiguous(0)
    waiting: list[int] = []
    handed: dict[int, int] = {}
    finished: set[int] = set()
    at = 0
    for _ in range(data.draw(st.integers(1, 60))):
        if waiting and data.draw(st.booleans()):
            position = waiting.pop(data.draw(st.integers(0, len(waiting) - 1)))
            before = log.safe
            moved = log.finish(position)
            finished.add(position)
            assert moved == (log.safe != before)
        else:
            # Logs have holes: compacted messages, blank lines.
            position = at + data.draw(st.integers(0, 3))
            at = position + data.draw(st.integers(1, 50))
            log.add(position, at)
            handed[position] = at
            waiting.append(position)
        assert log.safe is not None
        unfinished = [position for position in handed if position not in finished]
        assert all(log.safe <= position for position in unfinished)
        # All that may be remembered is remembered.
        first = min(unfinished, default=at)
        assert log.safe == max((handed[each] for each in finished if each < first), default=0)
        assert len(log) == len(unfinished)


def test_twice_and_unknown_change_nothing() -> None:
    log = Contiguous()
    log.add(5, 6)
    log.add(6, 7)
    assert not log.finish(6)
    assert not log.finish(6)
    assert not log.finish(99)
    assert log.safe is None
    assert log.is_open(5)
    assert not log.is_open(6)
    assert log.finish(5)
    assert log.safe == 7


@pytest.mark.parametrize("position", [(5, 5), (4, 6)])
def test_positions_rise(position: tuple[int, int]) -> None:
    log = Contiguous()
    log.add(4, 5)
    with pytest.raises(ValueError, match=r"position \d to \d comes after 5"):
        log.add(*position)
