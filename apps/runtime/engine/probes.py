"""Questions to stores that may hang: each in a thread of its own, none waited for too long."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future

logger = logging.getLogger(__name__)

# A probe answers None when all is well, else what is wrong, fit for strangers' eyes.
Probe = Callable[[], str | None]

NO_ANSWER = "no answer in time"
FAILED = "the check itself failed"


class Probes:
    """Runs all probes at once. One that hangs is not asked again until it has come back."""

    def __init__(self, probes: Mapping[str, Probe]) -> None:
        self._probes = dict(probes)
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[str, Future[str | None]] = {}

    def ask(self, timeout: float) -> dict[str, str | None]:
        """What is wrong with each store, after at most ``timeout`` seconds in total."""
        deadline = time.monotonic() + timeout
        with self._lock:
            for name, probe in self._probes.items():
                if name not in self._running or self._running[name].done():
                    self._running[name] = _start(name, probe)
            asked = dict(self._running)
        return {name: _answer(future, deadline) for name, future in asked.items()}


def _start(name: str, probe: Probe) -> Future[str | None]:
    future: Future[str | None] = Future()

    def work() -> None:
        try:
            future.set_result(probe())
        except Exception:  # a bug in a probe means "not ready", and is no error of who asks
            logger.exception("the probe of the %s failed", name)
            future.set_result(FAILED)

    # No thread pool: its threads are waited for at exit, and one of these may hang for minutes.
    threading.Thread(target=work, name=f"probe-{name}", daemon=True).start()
    return future


def _answer(future: Future[str | None], deadline: float) -> str | None:
    try:
        return future.result(max(0.0, deadline - time.monotonic()))
    except TimeoutError:
        return NO_ANSWER
