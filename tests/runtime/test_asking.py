"""A server that hangs delays nobody for longer than they want to wait."""

from __future__ import annotations

import threading
import time

import pytest

from apps.runtime.engine.asking import Asker


def test_an_answer_serves_all_for_a_while() -> None:
    calls: list[int] = []

    def ask() -> int:
        calls.append(1)
        return len(calls)

    asker = Asker(ask, fresh_seconds=60, name="test")
    assert [asker.read(10) for _ in range(5)] == [1] * 5
    assert calls == [1]


def test_an_old_answer_is_asked_for_anew() -> None:
    calls: list[int] = []

    def ask() -> int:
        calls.append(1)
        return len(calls)

    asker = Asker(ask, fresh_seconds=0.0, name="test")
    assert asker.read(10) == 1
    time.sleep(0.01)
    assert asker.read(10) == 2


def test_one_question_at_a_time_and_nobody_waits_for_it_longer_than_asked() -> None:
    release, calls = threading.Event(), []

    def hang() -> str:
        calls.append(1)
        release.wait(30)
        return "at last"

    asker = Asker(hang, fresh_seconds=60, name="test")
    for _ in range(3):
        with pytest.raises(TimeoutError):
            asker.read(0.05)
    assert calls == [1]
    release.set()
    assert asker.read(10) == "at last"


def test_what_goes_wrong_is_told_to_who_asks() -> None:
    def away() -> str:
        raise OSError("gone")

    asker = Asker(away, fresh_seconds=60, name="test")
    with pytest.raises(OSError, match="gone"):
        asker.read(10)
