"""A message that always fails costs itself alone; a thread outlives its errors."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yardkit.guard import keep_running, settle


class Away(Exception):
    """An outage."""


@given(st.lists(st.booleans(), max_size=40))
def test_each_good_message_is_done_and_each_bad_one_rejected(bad: list[bool]) -> None:
    done: list[int] = []
    rejected: list[int] = []

    def work(part: Sequence[int]) -> None:
        if any(bad[number] for number in part):
            raise LookupError(part)
        done.extend(part)

    settle(range(len(bad)), work, lambda number, error: rejected.append(number), passing=(Away,))
    assert done == [number for number, is_bad in enumerate(bad) if not is_bad]
    assert rejected == [number for number, is_bad in enumerate(bad) if is_bad]


def test_a_batch_with_one_bad_message_takes_few_calls() -> None:
    calls: list[int] = []

    def work(part: Sequence[int]) -> None:
        calls.append(len(part))
        if 700 in part:
            raise LookupError

    settle(range(1024), work, lambda number, error: None, passing=())
    assert len(calls) <= 2 * 10 + 3


def test_a_single_message_is_tried_once_more() -> None:
    tries: list[str] = []

    def work(part: Sequence[str]) -> None:
        tries.append(part[0])
        if len(tries) == 1:
            raise LookupError("once")

    settle(["a"], work, lambda message, error: pytest.fail("rejected"), passing=())
    assert tries == ["a", "a"]


def test_an_outage_is_raised_and_rejects_nothing() -> None:
    def work(part: Sequence[int]) -> None:
        if 1 in part and len(part) == 1:
            raise Away
        if 1 in part:
            raise LookupError

    with pytest.raises(Away):
        settle(range(8), work, lambda number, error: pytest.fail("rejected"), passing=(Away,))


def test_a_thread_is_called_again_until_it_returns(caplog: pytest.LogCaptureFixture) -> None:
    class Stop:
        waits: list[float] = []

        def wait(self, timeout: float, /) -> bool:
            self.waits.append(timeout)
            return False

    calls: list[int] = []

    def work() -> None:
        calls.append(1)
        if len(calls) < 4:
            raise LookupError("a bug")

    stop = Stop()
    keep_running("beats", work, stop)
    assert len(calls) == 4
    assert 0.5 <= stop.waits[0] <= 1.0
    assert 2.0 <= stop.waits[2] <= 4.0
    assert [bool(record.exc_info) for record in caplog.records] == [True, False, False]


def test_a_stopped_thread_is_not_called_again() -> None:
    stop = threading.Event()
    stop.set()
    calls: list[int] = []

    def work() -> None:
        calls.append(1)
        raise LookupError("a bug")

    keep_running("beats", work, stop)
    assert calls == [1]
