"""Placement, claiming and starting of runs."""

from __future__ import annotations

import logging

from apps.jobs.daemon import intervals
from apps.jobs.daemon.context import RunnerContext
from apps.jobs.daemon.finisher import RunFinisher
from apps.jobs.daemon.specs import spec_of, with_account
from apps.jobs.models import Run
from apps.jobs.runners.base import CannotRun, RunExit, RunHandle, RunnerAway
from apps.jobs.services import claim_runs, mark_running, place_runs
from apps.jobs.states import RunState
from yardkit import failpoints

logger = logging.getLogger(__name__)


class RunStarter:
    """Places, claims and starts waiting runs."""

    def __init__(self, context: RunnerContext, ender: RunFinisher, capacity: int) -> None:
        self._context = context
        self._ender = ender
        self._capacity = capacity

    def place(self, *, woken: bool) -> None:
        """Assign waiting runs to hosts, after a wake-up and every ``PLACE_EVERY_SECONDS``."""
        if not (self._context.timers.due("place", intervals.PLACE_EVERY_SECONDS) or woken):
            return
        place_runs(now=self._context.now(), placer=self._context.host)
        failpoints.hit("jobs.placed")

    def claim(self) -> None:
        """Claim runs that are assigned to this host."""
        context = self._context
        free = self._capacity - len(context.handles) - len(context.claimed)
        if free > 0 and not context.problem:
            context.claimed += claim_runs(host=context.host, limit=free, now=context.now())

    def start_claimed(self) -> None:
        """Start the claimed runs that are ready; waiting for an image does not delay other runs."""
        context = self._context
        for _turn in range(len(context.claimed)):
            run = context.claimed.popleft()
            try:
                handle, later = self._start(run)
            except BaseException:
                # Also for a shutdown: the run keeps its place in the queue. If it was started
                # already, the reconciler finds it.
                context.claimed.appendleft(run)
                raise
            if later:
                context.claimed.append(run)
            if handle is None:
                continue
            context.unrecorded[run.pk] = run
            context.add(run, handle)
            logger.info("run %s started: %s", run.pk, handle.container[:12] or f"pid {handle.pid}")
            failpoints.hit("jobs.started")
            self.record_started()

    def _start(self, run: Run) -> tuple[RunHandle | None, bool]:
        """Start a claimed run; return its handle, and whether it must be tried again later.

        Returns (None, False) if the run ended before it was started.
        """
        context = self._context
        ours = Run.objects.filter(pk=run.pk, host=context.host, boot=run.boot)
        if not ours.filter(state=RunState.STARTING).exists():
            # The run was stopped, or marked as lost by another runner, before it was started.
            self._ender.finish(run, RunExit(code=None))
            return None, False
        failpoints.hit("jobs.before_start")
        try:
            spec = spec_of(run, context.folder_of(run.pk))
            if not context.runner.ready(spec):
                return None, True
            spec = with_account(spec, run, context.accounts)
            return context.runner.start(spec), False
        except RunnerAway:
            raise
        except CannotRun as error:
            self._ender.fail(run, str(error))
            return None, False

    def record_started(self) -> None:
        """Record in their rows that runs have started."""
        context = self._context
        for pk, run in list(context.unrecorded.items()):
            handle = context.handles.get(pk)
            if handle is not None:
                failpoints.hit("jobs.before_recorded")
                mark_running(
                    run=run,
                    pid=handle.pid,
                    process_started=handle.started,
                    container=handle.container,
                    now=context.now(),
                )
            del context.unrecorded[pk]
