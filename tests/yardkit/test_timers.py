"""Timers are due at once, then once in each interval."""

from __future__ import annotations

from yardkit.clock import ManualClock
from yardkit.timers import Timers


def test_a_timer_is_due_at_once_and_then_once_in_each_interval() -> None:
    clock = ManualClock()
    timers = Timers(clock.monotonic)
    assert timers.due("sweep", 10.0)
    assert not timers.due("sweep", 10.0)
    clock.advance(9.9)
    assert not timers.due("sweep", 10.0)
    assert 0.0 < timers.left("sweep") < 0.2
    clock.advance(0.1)
    assert timers.left("sweep") == 0.0
    assert timers.due("sweep", 10.0)
    assert timers.left("sweep") == 10.0


def test_timers_are_independent_and_can_be_moved() -> None:
    clock = ManualClock()
    timers = Timers(clock.monotonic)
    assert timers.due("sweep", 10.0)
    assert timers.due("report", 1.0)
    timers.hasten("sweep")
    assert timers.due("sweep", 10.0)
    timers.postpone("report", 60.0)
    clock.advance(59.0)
    assert not timers.due("report", 1.0)
    clock.advance(1.0)
    assert timers.due("report", 1.0)
