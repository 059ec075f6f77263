"""A thread that repeats a step and keeps the error that ended it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from yardkit.broker import DRAIN_SECONDS, BrokerClosed

WAIT_SECONDS = 0.5


class CenterThreadDied(RuntimeError):
    """A defect has ended a thread of the center; all threads have been restarted."""


class StepThread:
    """Calls ``step(timeout)`` until stopped; the end of its subscription ends it, too.

    Args:
        drains: after a stop, ``step`` is called again until it returns 0.
        at_end: called in the thread at its end, to release thread-local resources.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[float], object],
        *,
        drains: bool = False,
        at_end: Callable[[], None] | None = None,
    ) -> None:
        self.error: Exception | None = None
        self._step = step
        self._drains = drains
        self._at_end = at_end
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask_to_stop(self) -> None:
        """Request a stop; returns at once."""
        self._stopping.set()

    def join(self, timeout: float) -> None:
        """Wait for the end of the thread, up to ``timeout`` seconds."""
        self._thread.join(timeout)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._step(WAIT_SECONDS)
            until = time.monotonic() + DRAIN_SECONDS
            while self._drains and time.monotonic() < until and self._step(0.0):
                pass
        except BrokerClosed:
            return
        except Exception as error:  # noqa: BLE001 - the owner's thread raises it, see ``error``
            self.error = error
        finally:
            if self._at_end is not None:
                self._at_end()
