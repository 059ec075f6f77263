"""Overlap policy: applied when a run is due while earlier runs of its job are active.

Lock order, to avoid deadlocks: the job's row, the rows of its runs, the rows of following jobs. The
end of a run starts with the row of that run and continues with the following jobs.
"""

from __future__ import annotations

import contextlib
from datetime import datetime
from typing import Final

from django.db.models import Case, Value, When
from django.utils.translation import gettext as _

from apps.access.models import User
from apps.jobs.errors import JobRunning, MoveRefused, RunNotActive, TooManyWaiting
from apps.jobs.models import Job, Run
from apps.jobs.services.stops import stop_run
from apps.jobs.states import OverlapPolicy, RunState

# Limit of waiting runs per job.
WAITING_LIMIT: Final = 100


def make_way(
    *, job: Job, overlap: str, now: datetime, actor: User | None, reason: str = ""
) -> Run | None:
    """Apply ``overlap`` to the active runs of ``job``; return the run to wait for, if any.

    The caller holds the lock of the job's row. ``reason`` is recorded for a replaced run.

    Raises:
        JobRunning: a run is active, and the policy skips the later run.
        TooManyWaiting: the job's queue is full.
    """
    if overlap == OverlapPolicy.ALLOW:
        return None
    active = _active(job)
    if not active:
        return None
    if overlap == OverlapPolicy.SKIP:
        words = {"name": job.name, "run": active[0].pk, "state": active[0].get_state_display()}
        text = _("Job %(name)s has an active run, %(run)s, which is %(state)s.") % words
        raise JobRunning(text, run=active[0].pk)
    if overlap == OverlapPolicy.REPLACE:
        return _replace(job, now, actor, reason or _("replaced by a later run"))
    if len(active) > WAITING_LIMIT:
        raise TooManyWaiting(
            _("%(count)d runs are waiting, no more are allowed") % {"count": WAITING_LIMIT}
        )
    return active[0]


def _active(job: Job) -> list[Run]:
    return list(job.runs.active().live().select_related("job__project").order_by("-id"))


def _replace(job: Job, now: datetime, actor: User | None, reason: str) -> Run | None:
    _lock_active(job)
    # Read again: a run that ended while this transaction waited for its lock may have queued a
    # retry.
    active = _active(job)
    for run in active:
        if run.state != RunState.STOPPING or run.restart_wanted:
            # The run has ended or is already stopping: nothing to do.
            with contextlib.suppress(RunNotActive, MoveRefused):
                stop_run(run=run, now=now, actor=actor, reason=reason)
    return next((run for run in active if run.is_active), None)


def _lock_active(job: Job) -> None:
    """Lock all active runs of a job before any is stopped, to avoid deadlocks.

    A cancelled run locks the following jobs. Runs on a host are locked first: the end of such a run
    may make those queued behind it wait for its retry.
    """
    queued = Case(When(state=RunState.QUEUED, then=Value(1)), default=Value(0))
    behind = Case(When(waits_for__isnull=False, then=Value(1)), default=Value(0))
    rows = job.runs.active().live().select_for_update().order_by(queued, behind, "id")
    list(rows.values_list("pk", flat=True))
