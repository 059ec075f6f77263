"""What a reader of a log has to wait for."""

from __future__ import annotations

import pytest

from apps.joblogs.stores.accounts import ExecutionProgress
from apps.joblogs.stores.base import GAP_SECONDS

SECOND = 1_000_000


@pytest.mark.slow("3 s")
def test_who_drops_lines_all_the_time_holds_nobody_back_for_longer() -> None:
    progress, step = ExecutionProgress(), SECOND // 50
    for number in range(1, 3000):
        now = number * step
        progress.take([2 * number], now)
        # As the next transaction reads it.
        progress = ExecutionProgress(progress.spans.to_bytes(), progress.fresh_as_text())
        horizon = progress.horizon(now)
        assert horizon is not None
        waited = now - (horizon + 1) // 2 * step
        assert waited <= (GAP_SECONDS + 1) * SECOND, number
        if number > 1000:
            assert waited > (GAP_SECONDS - 1) * SECOND, number
        assert len(progress.fresh) <= 100


def test_a_message_with_very_many_gaps_is_waited_for_as_one() -> None:
    progress = ExecutionProgress()
    progress.take(list(range(2, 2000, 2)), SECOND)
    assert progress.horizon(SECOND) == 1
    assert len(progress.fresh) == 1
    assert progress.horizon(SECOND + int(GAP_SECONDS * SECOND)) is None
