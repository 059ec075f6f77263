"""Both clocks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from yardkit.clock import ManualClock, SystemClock


def test_the_machine_s_clock() -> None:
    clock = SystemClock()
    assert clock.now().tzinfo is UTC
    assert abs(clock.now().timestamp() - clock.time()) < 60
    assert clock.monotonic() <= clock.monotonic()


def test_a_clock_for_tests() -> None:
    start = datetime(2026, 5, 1, tzinfo=UTC)
    clock = ManualClock(start)
    before = clock.monotonic()
    clock.advance(90.5)
    assert clock.now() == start + timedelta(seconds=90.5)
    assert clock.time() == clock.now().timestamp()
    assert clock.monotonic() == before + 90.5
    clock.jump(-3600)
    assert clock.now() < start
    assert clock.monotonic() == before + 90.5
    with pytest.raises(ValueError, match="backwards"):
        clock.advance(-1)
