"""Questions to servers that may hang: whoever needs the answer waits so long and no longer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class Asker(Generic[T]):
    """Asks in a thread of its own, one question at a time; an answer serves all for a while.

    Args:
        ask: The question. What it raises is raised where the answer is read.
        fresh_seconds: For so long from the question its answer is given again.
    """

    def __init__(self, ask: Callable[[], T], *, fresh_seconds: float, name: str) -> None:
        self._ask = ask
        self._fresh = fresh_seconds
        self._name = name
        self._lock = threading.Lock()
        self._asking: Future[T] | None = None
        self._asked_at = float("-inf")

    def read(self, timeout: float) -> T:
        """The answer.

        The time counts from the question: a server that hangs delays one caller and no other.

        Raises:
            TimeoutError: there is none in time.
        """
        with self._lock:
            asking = self._asking
            answered = asking is not None and asking.done()
            too_old = time.monotonic() - self._asked_at > self._fresh
            if asking is None or (answered and too_old):
                asking = self._asking = self._start()
                self._asked_at = time.monotonic()
            left = timeout - (time.monotonic() - self._asked_at)
        return asking.result(max(0.0, left))

    def _start(self) -> Future[T]:
        future: Future[T] = Future()

        def work() -> None:
            try:
                future.set_result(self._ask())
            except Exception as error:  # noqa: BLE001 - raised again where the answer is read
                future.set_exception(error)

        # No thread pool: its threads are waited for at exit, and a server may hang for minutes.
        threading.Thread(target=work, name=self._name, daemon=True).start()
        return future
