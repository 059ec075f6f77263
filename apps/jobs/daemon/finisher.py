"""Stop, freeze and end of the runs on this host."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

from django.db.models import F, Q
from django.utils.translation import gettext as _

from apps.jobs.daemon import intervals
from apps.jobs.daemon.context import RunnerContext
from apps.jobs.models import Run, RunCommand
from apps.jobs.runners.base import RunExit
from apps.jobs.runners.terminations import Terminations
from apps.jobs.services import finish_run, mark_frozen, restart_here, time_out_run
from apps.jobs.states import FINAL, FREEZABLE, RunAsk, RunState
from yardkit import failpoints

logger = logging.getLogger(__name__)


class RunFinisher:
    """Ends and freezes executions as requested in their rows, and records how they ended."""

    def __init__(self, context: RunnerContext, endings: Terminations) -> None:
        self._context = context
        self._endings = endings
        # Monotonic time at which a run was first seen stopping.
        self._stopping: dict[int, float] = {}

    # --- ends -------------------------------------------------------------------------------------

    def collect(self, *, leaving: bool = False) -> int:
        """Record every execution that has ended; return their number."""
        context = self._context
        ended = 0
        for pk, handle in list(context.handles.items()):
            result = context.runner.poll(handle)
            if result is None:
                continue
            failpoints.hit("jobs.exit_seen")
            context.runner.sweep(run=pk, boot=handle.boot)
            context.close_account(pk, handle.boot)
            context.shipper.finish(run=pk)
            run = Run.objects.select_related("job__project").filter(pk=pk).first()
            if run is not None and run.boot == handle.boot:
                self.finish(run, result, leaving=leaving)
            # Only now: if the database was unreachable, a later round must record the end.
            del context.handles[pk]
            self._endings.forget(pk)
            self._stopping.pop(pk, None)
            context.unrecorded.pop(pk, None)
            ended += 1
        return ended

    def finish(self, run: Run, result: RunExit, *, leaving: bool = False) -> None:
        """Record the end of an execution, or restart the run if that was requested."""
        run.refresh_from_db(fields=["state", "reason", "restart_wanted"])
        if run.state == RunState.STOPPING and run.restart_wanted:
            failpoints.hit("jobs.before_restart")
            if restart_here(run=run, now=self._context.now()):
                failpoints.hit("jobs.restarted")
                logger.info("run %s restarts", run.pk)
                self._context.claimed.append(run)
                return
        state, reason = self._verdict(run, result, leaving)
        now = self._context.now()
        if finish_run(
            run=run,
            state=state,
            reason=reason,
            now=now,
            exit_code=result.code,
            total=result.total,
            failed=result.failed,
            items=result.items,
            exceptions=result.exceptions,
        ):
            logger.info("run %s %s%s", run.pk, state.value, f": {reason}" if reason else "")

    def fail(self, run: Run, reason: str) -> None:
        """Record that a run could not be started."""
        self._context.close_account(run.pk, run.boot)
        finish_run(run=run, state=RunState.FAILED, reason=reason, now=self._context.now())

    def _verdict(self, run: Run, result: RunExit, leaving: bool) -> tuple[RunState, str]:
        stopping = run.state == RunState.STOPPING
        done = result.state == "exited" or (result.code == 0 and not stopping)
        if stopping and self._timed_out(run):
            return RunState.FAILED, run.reason
        if done and result.code in (0, None):
            return RunState.EXITED, result.reason
        if stopping:
            return RunState.CANCELLED, run.reason or _("stopped by a user")
        if leaving or (result.code is None and result.state == "stopped"):
            host = {"host": self._context.host}
            return RunState.CANCELLED, _("the runner on %(host)s was stopped") % host
        if result.code is None and not result.state:
            unwatched = _("the process ended while no runner was watching it")
            return RunState.LOST, result.reason or unwatched
        return RunState.FAILED, result.reason

    def _timed_out(self, run: Run) -> bool:
        """Return whether the host stopped the run because of its time limit."""
        moves = run.moves.filter(to_state=RunState.STOPPING)
        # A recovery note is a move whose two states are equal.
        stop = moves.exclude(from_state=RunState.STOPPING).last()
        return stop is not None and bool(stop.reason) and stop.actor == run.host

    # --- requests in the rows ---------------------------------------------------------------------

    def see_to(self) -> None:
        """Stop, freeze or thaw executions as requested in their rows, and enforce time limits."""
        if not self._context.handles:
            return
        now = self._context.now()
        rows = Run.objects.filter(pk__in=self._context.handles).filter(
            Q(state__in=[RunState.STOPPING, *FINAL])
            | ~Q(freeze_wanted=F("frozen"))
            | Q(job__max_run_seconds__isnull=False)
        )
        stopping = []
        for run in rows.select_related("job__project"):
            limit = run.job.max_run_seconds
            if run.state == RunState.STOPPING:
                stopping.append(run)
            elif run.state in FINAL:
                # Another runner has marked the run as lost.
                self._end(run.pk)
            elif limit and run.started_at and now > run.started_at + timedelta(seconds=limit):
                if time_out_run(run=run, seconds=limit, now=now):
                    stopping.append(run)
            elif run.freeze_wanted != run.frozen:
                self._halt(run)
        if stopping:
            self._stop(stopping)

    def _halt(self, run: Run) -> None:
        handle = self._context.handles[run.pk]
        if run.freeze_wanted:
            if run.state not in FREEZABLE:
                return
            self._context.runner.freeze(handle)
        else:
            self._context.runner.thaw(handle)
        mark_frozen(run=run, frozen=run.freeze_wanted, now=self._context.now())

    def _stop(self, runs: list[Run]) -> None:
        rows = RunCommand.objects.filter(
            run__in=runs, action__in=[RunAsk.EXIT, RunAsk.RESTART]
        ).order_by("id")
        commands = {(command.run_id, command.boot): command for command in rows}
        monotonic = self._context.clock.monotonic()
        for run in runs:
            since = self._stopping.setdefault(run.pk, monotonic)
            patience = _patience(commands.get((run.pk, run.boot)))
            if monotonic - since >= patience:
                self._end(run.pk)

    def _end(self, pk: int) -> None:
        if self._endings.ask(pk) > intervals.STOP_GRACE_SECONDS:
            self._context.runner.kill(self._context.handles[pk])


def _patience(command: Any) -> float:
    """Return the seconds between the exit message and SIGTERM."""
    if command is None or command.accepted is False:
        # No exit message was sent, or the run has refused it.
        return 0.0
    if command.answered_at is None:
        return intervals.UNHEARD_SECONDS
    return intervals.ANSWERED_SECONDS
