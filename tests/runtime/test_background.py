"""The background worker of a process."""

from __future__ import annotations

import os
import threading
import time

import pytest

from apps.runtime.engine.background import BackgroundWorker
from tests.runtime.processes import PATIENCE_SECONDS, wait_for


def test_wakes_during_the_work_are_one_more_round() -> None:
    rounds: list[int] = []
    at_work, go_on = threading.Event(), threading.Event()

    def work() -> None:
        rounds.append(1)
        at_work.set()
        assert go_on.wait(PATIENCE_SECONDS)

    worker = BackgroundWorker("test", work)
    assert not worker.started
    worker.wake()
    assert at_work.wait(PATIENCE_SECONDS)
    for _ in range(100):
        worker.wake()
    go_on.set()
    worker.stop(PATIENCE_SECONDS)
    # The first, one for all the wakes in between, at most one more for the end.
    assert 2 <= len(rounds) <= 3


def test_it_comes_back_by_itself_when_the_work_asks_for_it() -> None:
    rounds: list[int] = []
    worker = BackgroundWorker(
        "test", lambda: rounds.append(1) or (0.01 if len(rounds) < 3 else None)
    )
    worker.wake()
    wait_for(lambda: len(rounds) == 3, "three rounds after one wake")
    worker.stop(PATIENCE_SECONDS)


def test_a_bad_round_is_logged_and_not_the_last(caplog: pytest.LogCaptureFixture) -> None:
    rounds: list[int] = []

    def work() -> None:
        rounds.append(1)
        if len(rounds) == 1:
            raise LookupError("a bug")

    worker = BackgroundWorker("test", work)
    worker.wake()
    wait_for(lambda: "a bug" in caplog.text, "the error is logged")
    worker.wake()
    wait_for(lambda: len(rounds) == 2, "the next round")
    worker.stop(PATIENCE_SECONDS)


def test_what_was_asked_for_is_done_before_the_end_and_nothing_after() -> None:
    rounds: list[int] = []
    worker = BackgroundWorker("test", lambda: rounds.append(1))
    worker.wake()
    worker.stop(PATIENCE_SECONDS)
    assert rounds
    done = len(rounds)
    worker.wake()
    assert len(rounds) == done
    worker.restart()
    worker.wake()
    wait_for(lambda: len(rounds) > done, "it works again")
    worker.stop(PATIENCE_SECONDS)


def test_stopping_does_not_wait_for_hanging_work() -> None:
    release = threading.Event()
    worker = BackgroundWorker("test", lambda: release.wait(PATIENCE_SECONDS) and None)
    worker.wake()
    before = time.monotonic()
    worker.stop(0.05)
    assert time.monotonic() - before < PATIENCE_SECONDS / 2
    release.set()


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_starts_with_a_thread_of_its_own() -> None:
    reader, writer = os.pipe()
    worker = BackgroundWorker(
        "test", lambda: os.write(writer, str(os.getpid()).encode() + b" ") and None
    )
    worker.wake()
    assert os.read(reader, 100) == f"{os.getpid()} ".encode()
    child = os.fork()
    if child == 0:
        worker.wake()
        worker.stop(PATIENCE_SECONDS)
        os._exit(0)
    os.waitpid(child, 0)
    assert f"{child} ".encode() in os.read(reader, 100)
    worker.stop(PATIENCE_SECONDS)
    os.close(reader)
    os.close(writer)
