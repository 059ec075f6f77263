"""The router: inbounds to outbounds by the rules of each project (seed S2.1, S2.3).

Workers take batches and do all that each needs, the next one then. One thread more looks after what
waits in the ledger, and one after targets that are away and servers that are asked for numbers, for
that may take its time. The main thread follows the rules and writes the reports.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from django.db import connection, connections

from apps.configcenter.services import ConfigWatcher
from apps.routing.daemon.reporting import Reporting
from apps.routing.daemon.tending import Tending
from apps.routing.daemon.working import Work
from apps.routing.daemon.yard import Environment, Yard
from apps.runtime.daemon import Identity
from apps.runtime.errors import DATABASE_AWAY
from yardkit.backoff import Backoff
from yardkit.clock import Clock
from yardkit.stop import Stop

logger = logging.getLogger(__name__)

STEP_SECONDS: Final = 0.25
# Seconds without work after which the router counts as idle.
IDLE_SECONDS: Final = 1.0
_TURN_SECONDS: Final = 0.1
_PROBE_SECONDS: Final = 0.25
_LEAST_PAUSE_SECONDS: Final = 0.005
# Of the 4 s in which a process has to be gone: the rest closes connections.
_END_SECONDS: Final = 3.4


class RouterDaemon:
    """See the module.

    Args:
        workers: threads that take batches; 0 does all work in ``step``, for tests and for databases
            that threads cannot share.
        project_id: limits it to one project.
    """

    def __init__(
        self,
        *,
        environment: Environment,
        clock: Clock,
        identity: Identity,
        workers: int,
        project_id: int | None = None,
        stop: Stop | None = None,
    ) -> None:
        self._clock = clock
        self._stop = stop
        self._stopping = threading.Event()
        self.yard = Yard(environment, clock, workers=workers)
        self.work = Work(clock, self._stopping)
        self.tending = Tending(self.yard, self.work, clock)
        self.reporting = Reporting(self.yard, clock, router=f"{identity.name}:{identity.boot}")
        self.rules = ConfigWatcher(
            kind="routing",
            apply=self.yard.use,
            clock=clock,
            identity=identity,
            project_id=project_id,
        )
        self._workers = workers
        self._threads: list[threading.Thread] = []

    def setup(self) -> None:
        """Apply the active rules, then start."""
        self.rules.setup()
        if self._workers and not self._threads:
            for number in range(self._workers):
                self._start(f"worker {number + 1}", self._take_turn)
            self._start("tending", self.tending.turn)
            self._start("probing", self._probe_turn)

    def step(self) -> bool:
        """Follow the rules, report; whether there was work a moment ago."""
        self.rules.poll()
        self._report()
        if not self._workers:
            return self._inline()
        if self._stop is not None:
            self._stop.wait(STEP_SECONDS)
        else:
            time.sleep(STEP_SECONDS)
        return self._clock.monotonic() < self.work.active_at + IDLE_SECONDS

    def teardown(self) -> None:
        """Finish what is in hand, acknowledge it, let go of everything."""
        end = time.monotonic() + _END_SECONDS
        self._stopping.set()
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        late = [thread.name for thread in self._threads if thread.is_alive()]
        if late:
            logger.warning("%s did not end in time; what they had comes again", ", ".join(late))
        self.yard.close()
        try:
            self.reporting.end()
        except DATABASE_AWAY as error:
            logger.warning("the last report is not taken back: %s", error)

    def _report(self) -> None:
        try:
            self.reporting.turn()
        except DATABASE_AWAY as error:
            self.work.note_outage(error)

    def _inline(self) -> bool:
        busy = self._take_turn()
        busy |= self.tending.turn()
        busy |= self._probe_turn()
        return busy

    # --- threads ----------------------------------------------------------------------------------

    def _start(self, name: str, turn: Callable[[], bool]) -> None:
        thread = threading.Thread(target=self._run, args=(turn,), name=f"router {name}")
        thread.daemon = True
        self._threads.append(thread)
        thread.start()

    def _run(self, turn: Callable[[], bool]) -> None:
        backoff = Backoff()
        try:
            while not self._stopping.is_set():
                try:
                    busy = turn()
                except DATABASE_AWAY as error:
                    self.work.note_outage(error)
                except Exception:
                    # One turn fails; what it had in hand comes again.
                    logger.exception("a turn of the router has failed")
                    connection.close()
                else:
                    backoff.reset()
                    if not busy:
                        self._stopping.wait(self._pause(turn))
                    continue
                self._stopping.wait(backoff.seconds())
        finally:
            connections.close_all()

    def _pause(self, turn: Callable[[], bool]) -> float:
        if turn == self._take_turn:
            return max(self.yard.pause(), _LEAST_PAUSE_SECONDS)
        return _PROBE_SECONDS if turn == self._probe_turn else _TURN_SECONDS

    def _take_turn(self) -> bool:
        found = self.yard.turn()
        if found is None:
            return False
        running, line = found
        count = 0
        try:
            count = self.work.take(running, line)
        finally:
            self.yard.found(running, line, count)
            self.yard.done(running, line)
        return count > 0

    def _probe_turn(self) -> bool:
        self.reporting.ask()
        return self.tending.probe()
