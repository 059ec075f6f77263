"""The runner: takes waiting runs, starts them on this host, watches and stops them."""

from __future__ import annotations

import json
import logging
from collections import deque
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec
from django.conf import settings
from django.db import DatabaseError, InterfaceError

from apps.jobs.models import Run
from apps.jobs.runners.ending import Endings
from apps.jobs.runners.process import (
    Exit,
    Handle,
    ProcessRunner,
    RunSpec,
    never_began,
    read_exit,
)
from apps.jobs.services import (
    WATCH_LEASE_SECONDS,
    adopt_run,
    claim_runs,
    finish_run,
    mark_running,
    reap_lost_runs,
    watch_runs,
)
from apps.jobs.states import FINAL, RunState
from apps.runtime.services import database_now
from yardkit import failpoints, topology
from yardkit.broker import Broker, Subscription
from yardkit.clock import Clock
from yardkit.stop import Stop
from yardkit.tokens import sign_run_token

logger = logging.getLogger(__name__)

WATCH_EVERY_SECONDS: Final = 5.0
# After so long without a watch of its own, a runner gives the others time before it judges them:
# most likely the database was away for all of them.
WATCH_GAP_SECONDS: Final = 15.0
STOP_GRACE_SECONDS: Final = 5.0
# On the runner's own way out everything must be over within 5 s, and a supervisor kills it
# before that: what does not listen must be dead by then.
SHUTDOWN_GRACE_SECONDS: Final = 2.4
KILL_SECONDS: Final = 0.5
POLL_SECONDS: Final = 0.2


class RunnerDaemon:
    """One runner a host. The rows say what should run; this makes it so.

    Args:
        stop: tells at the end whether a person or a supervisor has asked for it. Without one
            every end counts as asked for.
    """

    def __init__(
        self,
        *,
        broker: Broker,
        host: str,
        clock: Clock,
        capacity: int,
        folder: Path,
        stop: Stop | None = None,
    ) -> None:
        self.broker = broker
        self.host = host
        self.clock = clock
        self.capacity = capacity
        self.folder = folder
        self.runner = ProcessRunner()
        self.handles: dict[int, Handle] = {}
        self._stop = stop
        # Ours, and not started yet; and started, which the rows do not say yet.
        self._claimed: deque[Run] = deque()
        self._unrecorded: dict[int, Run] = {}
        self._endings = Endings(self.runner, self.handles)
        self._watched = 0.0
        self._reap_at = 0.0
        self._database_ahead = timedelta()
        self._wakeups: Subscription | None = None
        if stop is not None:
            self._endings.watch(
                stop, grace_seconds=SHUTDOWN_GRACE_SECONDS, kill_seconds=KILL_SECONDS
            )

    # --- life -----------------------------------------------------------------------------------

    def setup(self) -> None:
        """Listen for wake-ups, and take over what an earlier runner of this name left behind."""
        # It is tried again after a failure: begin anew.
        self._close()
        self.handles.clear()
        self._claimed.clear()
        self._unrecorded.clear()
        self.broker.declare(*topology.SHARED)
        self._wakeups = self.broker.subscribe(topology.RUNNERS.name, prefetch=100)
        self._read_clock()
        for run in Run.objects.on_host(self.host).select_related("job__project"):
            self._reconcile(run)

    def step(self) -> bool:
        """One round. True while a run is here: a runner has then something to do."""
        if self._wakeups is not None:
            # A message only wakes: the rows are read anyway, so its content does not matter.
            self._wakeups.ack(self._wakeups.take(100, timeout=POLL_SECONDS))
        ended = self._collect_exits()
        self._stop_unwanted()
        self._record_started()
        self._claim()
        self._start_claimed()
        if self.clock.monotonic() - self._watched >= WATCH_EVERY_SECONDS:
            self._watch()
        return bool(ended or self.handles)

    def teardown(self) -> None:
        """Stop what runs here, so that nothing is left behind without a watcher.

        A runner that ends because something is broken, or because another one has taken its name,
        leaves its runs alone: the next one takes them over.
        """
        self._endings.close()
        if self._stop is not None and not self._stop.signal_name:
            if self.handles:
                logger.warning("%d runs go on without this runner", len(self.handles))
            self._close()
            return
        self._endings.end_all(grace_seconds=SHUTDOWN_GRACE_SECONDS, kill_seconds=KILL_SECONDS)
        try:
            self._collect_exits(leaving=True)
        except (DatabaseError, InterfaceError) as error:
            logger.warning("how the runs ended is written down at the next start: %s", error)
        self._close()

    def _close(self) -> None:
        if self._wakeups is not None:
            self._wakeups.close()
            self._wakeups = None

    # --- starting -------------------------------------------------------------------------------

    def _claim(self) -> None:
        free = self.capacity - len(self.handles) - len(self._claimed)
        if free > 0:
            self._claimed += claim_runs(host=self.host, limit=free, now=self._now())

    def _start_claimed(self) -> None:
        while self._claimed:
            run = self._claimed.popleft()
            try:
                handle = self._start(run)
            except BaseException:
                # Nothing was started: it has its turn when the database is back.
                self._claimed.appendleft(run)
                raise
            if handle is None:
                continue
            self.handles[run.pk] = handle
            self._unrecorded[run.pk] = run
            logger.info("run %s started: %s, pid %s", run.pk, run.job.spider, handle.pid)
            failpoints.hit("jobs.started")
            self._record_started()

    def _start(self, run: Run) -> Handle | None:
        """The process of a claimed run, or None where it ends before it began."""
        if not Run.objects.filter(pk=run.pk, host=self.host, state=RunState.STARTING).exists():
            # Stopped, or given up by another runner, before its turn.
            self._finish(run, Exit(code=None))
            return None
        failpoints.hit("jobs.before_start")
        try:
            return self.runner.start(self._spec(run))
        except (OSError, ValueError) as error:
            reason = f"the process could not be started: {error}"
            finish_run(run=run, state=RunState.FAILED, reason=reason, now=self._now())
            return None

    def _record_started(self) -> None:
        for pk, run in list(self._unrecorded.items()):
            handle = self.handles.get(pk)
            if handle is not None:
                now = self._now()
                mark_running(run=run, pid=handle.pid, process_started=handle.started, now=now)
            del self._unrecorded[pk]

    def _spec(self, run: Run) -> RunSpec:
        job = run.job
        environment = {
            "BROKER_URL": settings.BROKER_URL,
            "CRAWLYARD_RUN_TOKEN": sign_run_token(settings.SECRET_KEY, run.pk),
            "CRAWLYARD_ARGUMENTS": json.dumps(run.arguments),
            "CRAWLYARD_SETTINGS": json.dumps(job.spider_settings()),
            "CRAWLYARD_DOWNLOADER": msgspec.json.encode(job.downloader_settings()).decode(),
            "CRAWLYARD_POLICY": job.policy,
            "CRAWLYARD_AGENTS": str(job.agents),
        }
        return RunSpec(
            run=run.pk,
            boot=run.boot,
            spider=run.job.spider,
            folder=self._folder(run),
            environment=environment,
            python_path=settings.SPIDER_PYTHON_PATH,
        )

    def _folder(self, run: Run) -> Path:
        return self.folder / str(run.pk)

    # --- ending ---------------------------------------------------------------------------------

    def _collect_exits(self, *, leaving: bool = False) -> int:
        ended = 0
        for pk, handle in list(self.handles.items()):
            result = self.runner.poll(handle)
            if result is None:
                continue
            self.runner.sweep(run=pk, boot=handle.boot)
            run = Run.objects.select_related("job__project").filter(pk=pk).first()
            if run is not None:
                self._finish(run, result, leaving=leaving)
            # Only now: while the database is away the end must not be forgotten.
            del self.handles[pk]
            self._endings.forget(pk)
            self._unrecorded.pop(pk, None)
            ended += 1
        return ended

    def _finish(self, run: Run, result: Exit, *, leaving: bool = False) -> None:
        run.refresh_from_db(fields=["state"])
        reason = result.reason
        if result.code == 0 or (result.code is None and result.state == "exited"):
            state = RunState.EXITED
        elif run.state == RunState.STOPPING:
            state, reason = RunState.CANCELLED, "stopped by a person"
        elif leaving or (result.code is None and result.state == "stopped"):
            state, reason = RunState.CANCELLED, f"the runner on {self.host} was stopped"
        elif result.code is None and not result.state:
            state, reason = RunState.LOST, "the process ended while no runner was watching it"
        else:
            state = RunState.FAILED
        if finish_run(run=run, state=state, reason=reason, now=self._now(), exit_code=result.code):
            logger.info("run %s %s%s", run.pk, state.value, f": {reason}" if reason else "")

    def _stop_unwanted(self) -> None:
        """End what a person wants to stop, and what others have given up for lost."""
        if not self.handles:
            return
        unwanted = Run.objects.filter(
            pk__in=self.handles, state__in=[RunState.STOPPING, *FINAL]
        ).values_list("pk", flat=True)
        for pk in unwanted:
            if self._endings.ask(pk) > STOP_GRACE_SECONDS:
                self.runner.kill(self.handles[pk])

    # --- watching -------------------------------------------------------------------------------

    def _now(self) -> datetime:
        """The database's time: a host whose clock is wrong must not judge the others by it."""
        return self.clock.now() + self._database_ahead

    def _read_clock(self) -> None:
        self._database_ahead = database_now() - self.clock.now()

    def _watch(self) -> None:
        """Say that the runs here are watched, and see after those that nobody watches any more."""
        self._read_clock()
        now = self._now()
        watch_runs(host=self.host, now=now)
        # The rows are the truth: a claim may have been committed whose answer was lost.
        known = [*self.handles, *(run.pk for run in self._claimed)]
        for run in (
            Run.objects.on_host(self.host).exclude(pk__in=known).select_related("job__project")
        ):
            self._reconcile(run)
        monotonic = self.clock.monotonic()
        if monotonic - self._watched > WATCH_GAP_SECONDS:
            self._reap_at = monotonic + WATCH_LEASE_SECONDS
        self._watched = monotonic
        if monotonic < self._reap_at:
            return
        stale = Run.objects.stale(now=now, lease_seconds=WATCH_LEASE_SECONDS)
        for run in stale.select_related("job__project"):
            # The runner it belonged to had another name, on this very machine.
            handle = self._find(run)
            if handle is not None and adopt_run(run=run, host=self.host, now=now):
                self._take_over(run, handle)
        reap_lost_runs(now=now)

    def _reconcile(self, run: Run) -> None:
        handle = self._find(run)
        if handle is not None:
            self._take_over(run, handle)
        elif run.state == RunState.STARTING and never_began(self._folder(run)):
            self._claimed.append(run)
        else:
            self.runner.sweep(run=run.pk, boot=run.boot)
            self._finish(run, read_exit(self._folder(run), None))

    def _find(self, run: Run) -> Handle | None:
        return self.runner.find(
            run=run.pk,
            boot=run.boot,
            folder=self._folder(run),
            pid=run.pid or 0,
            started=run.process_started or 0.0,
        )

    def _take_over(self, run: Run, handle: Handle) -> None:
        self.handles[run.pk] = handle
        if run.state == RunState.STARTING:
            self._unrecorded[run.pk] = run
        logger.info("run %s: taken over, pid %s", run.pk, handle.pid)
