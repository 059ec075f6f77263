"""Celery worker inside a process of the product."""

from __future__ import annotations

import itertools
import logging
import os
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Final

from celery import signals
from celery.platforms import SecurityWarning
from celery.worker import state

from crawlyard.task_files import hand_out_no_more
from yardkit.liveness import FEED_SECONDS, LivenessReporter
from yardkit.stop import Stop

logger = logging.getLogger(__name__)

# Below the 5 s in which a process must have ended.
GRACE_SECONDS: Final = 2.0
IDLE_SECONDS: Final = 0.3
# A consumer that begins as often between two signs of life is refused, not reconnecting.
REFUSED_BEGINS: Final = 3


class Worker:
    """Run tasks in threads until a signal.

    A task that does not end within the grace period is abandoned: its message is not acknowledged,
    so another worker gets it, and its row has the progress. An abandoned build is lost and queued
    again.
    """

    def __init__(
        self, app: Any, *, name: str, queues: Sequence[str], concurrency: int, stop: Stop
    ) -> None:
        self.name = name
        self._life = LivenessReporter.take(name, os.environ)
        self._stop = stop
        self._ended = threading.Event()
        # Running as root is the operator's choice; messages are plain JSON, so Celery's warning is
        # moot.
        warnings.simplefilter("ignore", SecurityWarning)
        self._worker = app.Worker(
            hostname=name,
            queues=list(queues),
            concurrency=concurrency,
            pool="threads",
            loglevel="WARNING",
            quiet=True,
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
            task_events=False,
        )

    def run(self, *, on_tasks: Callable[[int], None], last_words: Callable[[], None]) -> int:
        """Run until a signal or ``stop``; return the exit status.

        ``on_tasks`` gets the number of finished tasks; ``last_words`` is called before a forced
        exit.
        """
        done = itertools.count(1)

        def ready(**_kwargs: Any) -> None:
            self._life.ready()
            on_tasks(0)

        def ended(**_kwargs: Any) -> None:
            on_tasks(next(done))

        signals.worker_ready.connect(ready, weak=False)
        signals.task_postrun.connect(ended, weak=False)
        signals.worker_shutting_down.connect(self._note, weak=False)
        guard = threading.Thread(
            target=self._guard, args=(last_words,), name="stop-guard", daemon=True
        )
        guard.start()
        logger.info("%s starts (pid %d)", self._worker.hostname, os.getpid())
        try:
            self._worker.start()
        finally:
            self._ended.set()
            logger.info("%s stopped", self._worker.hostname)
        return int(self._worker.exitcode or 0)

    def _note(self, **_kwargs: Any) -> None:
        # In a signal handler: only set a bool and write a byte.
        self._stop.request()

    def _begun(self) -> int:
        """Return how often the consumer began; while the broker is unreachable it waits."""
        return int(getattr(self._worker.consumer, "restart_count", 0))

    def _guard(self, last_words: Callable[[], None]) -> None:
        # Celery's loop blocks while the broker is unreachable; the process is alive all the same,
        # so heartbeats are sent from here. A consumer that the broker refuses is begun again and
        # again and never gets a task: such a process must look dead, so that it is seen.
        begun = self._begun()
        while not self._stop.wait(FEED_SECONDS):
            before, begun = begun, self._begun()
            if begun - before < REFUSED_BEGINS:
                self._life.feed()
            else:
                logger.error("the consumer began %d times in %g s", begun - before, FEED_SECONDS)
        self._life.stopping()
        # Also for a stop requested by code, or before Celery installed its signal handlers.
        state.should_stop = 0
        hand_out_no_more()
        give_up_at = time.monotonic() + GRACE_SECONDS
        while not self._ended.wait(IDLE_SECONDS):
            busy = [request.name for request in list(state.reserved_requests)]
            if not busy or time.monotonic() > give_up_at:
                break
        else:
            return
        # Celery checks for a stop only every other second; without tasks it can end at once.
        if busy:
            logger.warning("%s gives up %s", self._worker.hostname, ", ".join(sorted(busy)))
        last_words()
        logger.info("%s stopped", self._worker.hostname)
        logging.shutdown()
        os._exit(0)
