"""Questions to servers that may hang: each runs in its own thread, and no caller waits too long."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Question(Generic[T]):
    """A call that may hang: one execution at a time, whose result all callers share. Thread-safe.

    Args:
        ask: the call; it runs in a daemon thread, with thread-local state of its own. What it
            raises is raised where the answer is read.
        fresh_seconds: how long an answer is given again, counted from the moment of asking.
        name: the thread's name.
    """

    def __init__(self, ask: Callable[[], T], *, fresh_seconds: float = 0.0, name: str) -> None:
        self._ask = ask
        self._fresh = fresh_seconds
        self._name = name
        self._reset()
        _questions.add(self)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._future: Future[T] | None = None
        self._asked_at = float("-inf")

    def start(self) -> tuple[float, Future[T]]:
        """Ask unless it is being asked or the answer is fresh; return when, and the future.

        The moment is of ``time.monotonic``. A call that hangs is not repeated until it returns.
        """
        with self._lock:
            now = time.monotonic()
            future = self._future
            if future is None or (future.done() and now - self._asked_at > self._fresh):
                future = self._future = self._run()
                self._asked_at = now
            return self._asked_at, future

    def read(self, timeout: float) -> T:
        """Return the answer, at most ``timeout`` seconds after it was asked for.

        The time counts from the asking: a server that hangs delays one caller and no other.

        Raises:
            TimeoutError: there is no answer in time.
        """
        asked_at, future = self.start()
        return future.result(max(0.0, timeout - (time.monotonic() - asked_at)))

    def _run(self) -> Future[T]:
        future: Future[T] = Future()

        def work() -> None:
            try:
                future.set_result(self._ask())
            except Exception as error:  # noqa: BLE001 - raised again where the answer is read
                future.set_exception(error)

        # No thread pool: the interpreter waits for its threads at exit, and a server may hang.
        threading.Thread(target=work, name=self._name, daemon=True).start()
        return future


@dataclass(frozen=True, slots=True)
class QuestionOutcome(Generic[T]):
    """Outcome of one question: ``value``, or ``error`` (a ``TimeoutError`` when none came in time).

    ``seconds``: from the asking to the end of the wait.
    """

    value: T | None
    error: Exception | None
    seconds: float


def read_all(questions: Mapping[str, Question[T]], timeout: float) -> dict[str, QuestionOutcome[T]]:
    """Ask side by side; return an outcome for each after at most ``timeout`` seconds in total."""
    deadline = time.monotonic() + timeout
    started = {name: question.start() for name, question in questions.items()}
    answers: dict[str, QuestionOutcome[T]] = {}
    for name, (asked_at, future) in started.items():
        value, error = None, None
        try:
            value = future.result(max(0.0, deadline - time.monotonic()))
        except Exception as raised:  # noqa: BLE001 - handed to the caller
            error = raised
        answers[name] = QuestionOutcome(value, error, time.monotonic() - asked_at)
    return answers


_questions: weakref.WeakSet[Question[Any]] = weakref.WeakSet()


def _forget_threads() -> None:
    """A forked child has none of the threads that were asking."""
    for question in list(_questions):
        question._reset()


os.register_at_fork(after_in_child=_forget_threads)
