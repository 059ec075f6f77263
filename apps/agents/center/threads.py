"""A thread that repeats a step, and tells what it died of."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from yardkit.broker import DRAIN_SECONDS, BrokerClosed

WAIT_SECONDS = 0.5


class StepThread:
    """Calls ``step(timeout)`` until stopped; the end of its subscription ends it too.

    Args:
        drains: ``step`` is called again when stopped, until it says that it has done nothing.
        at_end: called in the thread when it is over, to let go of what belongs to a thread.
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
        """Start the thread."""
        self._thread.start()

    def ask_to_stop(self) -> None:
        """Returns at once; ``join`` waits for it."""
        self._stopping.set()

    def join(self, timeout: float) -> None:
        """Wait for the thread, up to so many seconds."""
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
