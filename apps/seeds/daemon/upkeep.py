"""Threads with periodic work."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from django.db import connections

from apps.runtime.errors import DATABASE_AWAY
from apps.seeds.engine.errors import SeedError
from yardkit.outage import Outage

logger = logging.getLogger(__name__)


class PeriodicThreads:
    """Threads with periodic work. Failures are logged once per outage, and the work is retried.

    ``stopping`` is set by ``stop``.
    """

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._outages: dict[str, Outage] = {}

    @property
    def started(self) -> bool:
        """Return whether any thread was started."""
        return bool(self._threads)

    def start(self, name: str, work: Callable[[], None], seconds: float) -> None:
        """Start a thread that calls ``work`` with a pause of ``seconds`` between calls."""
        thread = threading.Thread(
            target=self._run, args=(name, work, seconds), name=f"seeds {name}", daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def stop(self) -> None:
        """Ask the threads to end after their current call."""
        self.stopping.set()

    def join(self, seconds: float) -> None:
        """Wait up to ``seconds`` for the threads to end."""
        end = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        self._threads.clear()

    def attempt(self, name: str, work: Callable[[], None]) -> None:
        """Call ``work`` once; log an error instead of raising it."""
        outage = self._outages.setdefault(name, Outage(logger, f"seed service, {name}"))
        try:
            work()
        except (*DATABASE_AWAY, SeedError) as error:
            connections.close_all()
            outage.failed(error)
        except Exception:
            # Catch everything: one failed call must not end the thread.
            connections.close_all()
            logger.exception("seed service, %s", name)
        else:
            outage.recovered()

    def _run(self, name: str, work: Callable[[], None], seconds: float) -> None:
        try:
            while not self.stopping.is_set():
                self.attempt(name, work)
                self.stopping.wait(seconds)
        finally:
            connections.close_all()
