"""Enforces a stop when a callback does not return."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from yardkit.stop import Stop


class StopDeadline:
    """End the process ``seconds`` after a stop was requested, unless it has ended by itself.

    A callback that computes or sleeps blocks the event loop, and with it an orderly stop. This
    runs in a thread of its own.

    Args:
        last_words: called in that thread just before; returns the exit status.
    """

    def __init__(self, stop: Stop, seconds: float, last_words: Callable[[], int]) -> None:
        self._stop = stop
        self._seconds = seconds
        self._last_words = last_words
        self._reader, self._writer = os.pipe()
        self._thread = threading.Thread(target=self._watch, name="stop-deadline", daemon=True)

    def _watch(self) -> None:
        readable, _, _ = select.select([self._stop.fileno(), self._reader], [], [])
        if self._reader in readable:
            return
        if not select.select([self._reader], [], [], self._seconds)[0]:
            os._exit(self._last_words())

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.write(self._writer, b"\0")
        self._thread.join()
        os.close(self._reader)
        os.close(self._writer)
