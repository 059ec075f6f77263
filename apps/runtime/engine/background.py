"""Background thread that coalesces requests for the same work."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable

logger = logging.getLogger(__name__)

# Pause after an unexpected error; ``work`` chooses the pause after expected ones.
UNFORESEEN_PAUSE_SECONDS = 5.0


class BackgroundWorker:
    """Calls ``work`` in a thread soon after ``wake()``; wake-ups in between are coalesced.

    ``work`` returns the seconds until its next call without a wake-up, or None. The thread starts
    with the first ``wake()`` of a process, so a forked child starts its own.
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
        """Whether this process has started the thread."""
        return self._thread is not None

    def wake(self) -> None:
        """Request a call of ``work``; returns at once. Ignored after ``stop()``."""
        with self._lock:
            if self._stopping:
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
                self._thread.start()
        self._woken.set()

    def stop(self, timeout: float) -> None:
        """Finish requested work for at most ``timeout`` seconds, then end the thread."""
        with self._lock:
            self._stopping = True
            thread = self._thread
        if thread is None:
            return
        self._woken.set()
        thread.join(timeout)

    def restart(self) -> None:
        """Allow use again after ``stop()``."""
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
