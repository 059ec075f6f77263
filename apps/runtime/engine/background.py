"""One thread that does a piece of work once for any number of requests made meanwhile."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable

logger = logging.getLogger(__name__)

# After an unforeseen error; ``work`` chooses its own pause after those it foresees.
UNFORESEEN_PAUSE_SECONDS = 5.0


class BackgroundWorker:
    """Calls ``work`` in a thread of its own, soon after ``wake()``; wakes in between are one.

    ``work`` returns after how many seconds it wants to be called again without being woken, or
    None. The thread starts with the first ``wake()`` of a process, so a fork costs nothing: the
    child starts its own.
    """

    def __init__(self, name: str, work: Callable[[], float | None]) -> None:
        self.name = name
        self._work = work
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._thread: threading.Thread | None = None
        self._stopping = False

    @property
    def started(self) -> bool:
        """Whether this process has the thread."""
        return self._thread is not None

    def wake(self) -> None:
        """Ask for a call of ``work``; returns at once. Ignored after ``stop()``."""
        with self._lock:
            if self._stopping:
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
                self._thread.start()
        self._woken.set()

    def stop(self, timeout: float) -> None:
        """Finish what was asked for, for at most ``timeout`` seconds, and end the thread."""
        with self._lock:
            self._stopping = True
            thread = self._thread
        if thread is None:
            return
        self._woken.set()
        thread.join(timeout)

    def restart(self) -> None:
        """After ``stop()``: be usable again."""
        with self._lock:
            self._stopping = False
            self._thread = None

    def _run(self) -> None:
        due: float | None = None
        while True:
            self._woken.wait(None if due is None else max(0.0, due - time.monotonic()))
            self._woken.clear()
            stopping = self._stopping
            pause = self._once()
            if stopping:
                return
            due = None if pause is None else time.monotonic() + pause

    def _once(self) -> float | None:
        try:
            return self._work()
        except Exception:
            logger.exception("%s failed; it goes on", self.name)
            return UNFORESEEN_PAUSE_SECONDS
