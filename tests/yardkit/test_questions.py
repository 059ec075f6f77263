"""A server that hangs delays no caller beyond its own timeout."""

from __future__ import annotations

import os
import threading
import time

import pytest

from yardkit.questions import Question, read_all


def test_an_answer_serves_all_for_a_while() -> None:
    calls: list[int] = []

    def ask() -> int:
        calls.append(1)
        return len(calls)

    question = Question(ask, fresh_seconds=60, name="test")
    assert [question.read(10) for _ in range(5)] == [1] * 5
    assert calls == [1]


def test_an_old_answer_is_asked_for_anew() -> None:
    calls: list[int] = []

    def ask() -> int:
        calls.append(1)
        return len(calls)

    question = Question(ask, fresh_seconds=0.0, name="test")
    assert question.read(10) == 1
    time.sleep(0.01)
    assert question.read(10) == 2


def test_one_question_at_a_time_and_nobody_waits_for_it_longer_than_asked() -> None:
    release, calls = threading.Event(), []

    def hang() -> str:
        calls.append(1)
        release.wait(30)
        return "at last"

    question = Question(hang, fresh_seconds=60, name="test")
    for _ in range(3):
        with pytest.raises(TimeoutError):
            question.read(0.05)
    assert calls == [1]
    release.set()
    assert question.read(10) == "at last"


def test_what_goes_wrong_is_told_to_who_asks() -> None:
    def away() -> str:
        raise OSError("gone")

    question = Question(away, fresh_seconds=60, name="test")
    with pytest.raises(OSError, match="gone"):
        question.read(10)


def test_questions_are_read_side_by_side() -> None:
    def broken() -> str:
        raise LookupError("a bug")

    release, calls = threading.Event(), []

    def hang() -> str:
        calls.append(1)
        release.wait(30)
        return "at last"

    questions = {
        "good": Question(lambda: "fine", name="good"),
        "broken": Question(broken, name="broken"),
        "hung": Question(hang, name="hung"),
    }
    began = time.monotonic()
    for _ in range(3):
        answers = read_all(questions, 0.2)
    assert time.monotonic() - began < 5.0
    assert answers["good"].value == "fine"
    assert answers["good"].error is None
    assert isinstance(answers["broken"].error, LookupError)
    assert isinstance(answers["hung"].error, TimeoutError)
    assert answers["hung"].seconds >= 0.5, "counted from the asking"
    assert calls == [1]
    release.set()
    assert questions["hung"].read(10) == "at last"


def test_a_forked_child_asks_again() -> None:
    release = threading.Event()
    hung = Question(lambda: release.wait(30), name="hung")
    with pytest.raises(TimeoutError):
        hung.read(0.01)
    # The parent's thread, which would answer, is not in the child.
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        release.set()
        os.write(writer, b"yes" if hung.read(10) else b"no")
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 10) == b"yes"
    os.close(reader)
    os.close(writer)
    release.set()
