"""How the center's threads end."""

from __future__ import annotations

import threading

from apps.agents.center.threads import StepThread


def steps_after_the_stop(*, drains: bool) -> int:
    """Of five batches that are there when a thread is asked to stop during the first of them."""
    begun, go_on = threading.Event(), threading.Event()
    left = [5]

    def step(timeout: float) -> int:
        begun.set()
        assert go_on.wait(10)
        left[0] = max(left[0] - 1, 0)
        return left[0]

    thread = StepThread("x", step, drains=drains)
    thread.start()
    assert begun.wait(10)
    thread.ask_to_stop()
    go_on.set()
    thread.join(10)
    assert thread.error is None
    return left[0]


def test_one_that_drains_does_all_that_is_there() -> None:
    assert steps_after_the_stop(drains=True) == 0


def test_the_others_end_with_the_step_that_has_begun() -> None:
    assert steps_after_the_stop(drains=False) == 4
