"""Router daemon: moves items from inbounds to outbounds by each project's rules.

Threads of one process:

* Workers each take a batch from an inbound, process it completely, then take the next one.
* "backlog" claims due items of the ledger and sends parked ones.
* "probing" tries unreachable targets and queries queue depths, which may block.
* The main thread applies new versions of the rules and writes status reports.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from django.db import connection, connections

from apps.configcenter.services import ConfigWatcher
from apps.routing.daemon.backlog import BacklogProcessor
from apps.routing.daemon.pipeline import RoutingPipeline
from apps.routing.daemon.reports import RouterReporter
from apps.routing.daemon.rule_sets import Environment, RuleSetRuntime
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
# A process must stop within 4 s; the remaining time is for closing connections.
_END_SECONDS: Final = 3.4


class RouterDaemon:
    """Routes the items of all projects, or of one.

    Args:
        workers: threads that process batches. 0: all work is done in ``step``, for tests and for
            databases that threads cannot share.
        project_id: None for all projects.
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
        self.rule_sets = RuleSetRuntime(environment, clock, workers=workers)
        self.pipeline = RoutingPipeline(clock, self._stopping)
        self.backlog = BacklogProcessor(self.rule_sets, self.pipeline, clock)
        self.reporter = RouterReporter(
            self.rule_sets, clock, router=f"{identity.name}:{identity.boot}"
        )
        self.rules = ConfigWatcher(
            kind="routing",
            apply=self.rule_sets.use,
            clock=clock,
            identity=identity,
            project_id=project_id,
        )
        self._workers = workers
        self._threads: list[threading.Thread] = []

    def setup(self) -> None:
        """Apply the active rules, then start the threads."""
        self.rules.setup()
        if self._workers and not self._threads:
            for number in range(self._workers):
                self._start(f"worker {number + 1}", self._take_turn)
            self._start("backlog", self.backlog.turn)
            self._start("probing", self._probe_turn)

    def step(self) -> bool:
        """Apply new rules and write reports; return whether there was work in the last second."""
        self.rules.poll()
        self._report()
        if not self._workers:
            return self._inline()
        if self._stop is not None:
            self._stop.wait(STEP_SECONDS)
        else:
            time.sleep(STEP_SECONDS)
        return self._clock.monotonic() < self.pipeline.active_at + IDLE_SECONDS

    def teardown(self) -> None:
        """Finish and acknowledge current batches, then close all connections."""
        end = time.monotonic() + _END_SECONDS
        self._stopping.set()
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        late = [thread.name for thread in self._threads if thread.is_alive()]
        if late:
            logger.warning(
                "threads not stopped in time, items will be redelivered: %s", ", ".join(late)
            )
        self.rule_sets.close()
        try:
            self.reporter.delete()
        except DATABASE_AWAY as error:
            logger.warning("report not deleted: error=%s", error)

    def _report(self) -> None:
        try:
            self.reporter.write()
        except DATABASE_AWAY as error:
            self.pipeline.note_outage(error)

    def _inline(self) -> bool:
        busy = self._take_turn()
        busy |= self.backlog.turn()
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
                    self.pipeline.note_outage(error)
                except Exception:
                    # Only this turn is lost: its items are redelivered or claimed again.
                    logger.exception(
                        "router turn failed: thread=%s", threading.current_thread().name
                    )
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
            return max(self.rule_sets.pause(), _LEAST_PAUSE_SECONDS)
        return _PROBE_SECONDS if turn == self._probe_turn else _TURN_SECONDS

    def _take_turn(self) -> bool:
        turn = self.rule_sets.turn()
        if turn is None:
            return False
        running, channel = turn
        count = 0
        try:
            count = self.pipeline.take(running, channel)
        finally:
            self.rule_sets.polled(running, channel, count)
            self.rule_sets.done(running, channel)
        return count > 0

    def _probe_turn(self) -> bool:
        self.reporter.query_servers()
        return self.backlog.probe()
