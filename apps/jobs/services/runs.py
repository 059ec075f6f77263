"""Services of runs: start, claim, lease, finish, reap."""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import transaction
from django.utils.translation import gettext as _

from apps.access.models import User
from apps.access.services import record
from apps.jobs.errors import JobDeleted, JobDisabled
from apps.jobs.models import Job, Run, RunMove
from apps.jobs.services.commands import ask
from apps.jobs.services.moves import move
from apps.jobs.services.overlap import make_way
from apps.jobs.services.run_queue import queue_run
from apps.jobs.states import ON_A_HOST, RunAsk, RunState, Trigger
from apps.runtime.services import steady_for
from yardkit import failpoints

# Runners renew leases every few seconds; a lease expires after this time without a renewal.
WATCH_LEASE_SECONDS = 30.0
# Lease of the periodic task. Online runners reap each other's runs sooner; the task reaps the runs
# of the last runner.
REAP_AFTER_SECONDS: Final = 3 * WATCH_LEASE_SECONDS
# The task runs every 15 s. After a longer gap the database may have been unreachable for hosts too,
# and the lease time starts again. With a shorter limit it would start again in each call.
REAP_GAP_SECONDS: Final = 45.0


@transaction.atomic
def start_run(
    *,
    job: Job,
    now: datetime,
    actor: User | None,
    arguments: dict[str, Any] | None = None,
    overlap: str | None = None,
    trigger: Trigger = Trigger.PERSON,
    reason: str = "",
    **fields: Any,
) -> Run:
    """Queue a run of ``job``.

    ``arguments`` override those of the job, ``overlap`` its overlap policy. ``reason`` is recorded
    with the first state change. ``fields``: further columns of the run.

    Raises:
        JobDeleted: the job was deleted.
        JobDisabled: the job is disabled.
        JobRunning: a run of the job is active, and only one is allowed.
        TooManyWaiting: the queue of the job is full.
    """
    # Lock the job, so that two concurrent starts do not both find it idle. ``no_key`` avoids a
    # deadlock: the end of a run, which holds the lock of that run, must be able to insert runs of
    # this job while this transaction waits for the run's lock below.
    try:
        job.refresh_from_db(from_queryset=Job.objects.select_for_update(no_key=True))
    except Job.DoesNotExist as error:
        raise JobDeleted from error
    if not job.enabled:
        raise JobDisabled(_("Job %(name)s is disabled.") % {"name": job.name})
    run = queue_run(
        job=job,
        now=now,
        trigger=trigger,
        requested_by=actor.get_username() if actor else "",
        reason=reason,
        arguments=arguments,
        waits_for=make_way(job=job, overlap=overlap or job.overlap, now=now, actor=actor),
        **fields,
    )
    after = {"job": job.pk, "state": run.state}
    record(actor=actor, action="jobs.start_run", obj=run, project=job.project, after=after)
    return run


@transaction.atomic
def claim_runs(*, host: str, limit: int, now: datetime) -> list[Run]:
    """Claim up to ``limit`` runs that are assigned to ``host``."""
    waiting = Run.objects.waiting().filter(host=host).select_related("job__project").lock_free()
    claimed = []
    for run in waiting[:limit]:
        boot = secrets.token_hex(4)
        if move(run, RunState.STARTING, now=now, actor=host, boot=boot, watched_at=now):
            claimed.append(run)
    failpoints.hit("jobs.claimed")
    return claimed


@transaction.atomic
def mark_running(
    *, run: Run, pid: int | None, process_started: float, now: datetime, container: str = ""
) -> bool:
    """Record the started process or container; return False if the run was stopped or lost."""
    return move(
        run,
        RunState.RUNNING,
        now=now,
        actor=run.host,
        pid=pid,
        process_started=process_started,
        container=container,
        started_at=now,
        watched_at=now,
    )


@transaction.atomic
def finish_run(
    *,
    run: Run,
    state: RunState,
    reason: str,
    now: datetime,
    exit_code: int | None = None,
    total: int | None = None,
    failed: int | None = None,
    items: int | None = None,
    exceptions: int | None = None,
) -> bool:
    """Move a run to a final state; return False if it has ended already.

    ``total`` and ``failed`` are the numbers of its requests, ``items`` and ``exceptions`` those of
    its spider, if reported.
    """
    return move(
        run,
        state,
        now=now,
        actor=run.host,
        reason=reason,
        exit_code=exit_code,
        requests_total=total,
        requests_failed=failed,
        items=items,
        exceptions=exceptions,
        pid=None,
        frozen=False,
        freeze_wanted=False,
    )


@transaction.atomic
def time_out_run(*, run: Run, seconds: int, now: datetime) -> bool:
    """Stop a run that has exceeded its time limit; the run ends as failed."""
    reason = _("time limit of %(seconds)d s") % {"seconds": seconds}
    over = move(run, RunState.STOPPING, now=now, actor=run.host, reason=reason, freeze_wanted=False)
    if over:
        ask(run, RunAsk.EXIT, now=now, asked_by=run.host)
    return over


def note_recovery(*, run: Run, host: str, text: str, now: datetime) -> None:
    """Record the takeover of a run from an earlier runner as an entry in its state changes."""
    RunMove.objects.create(
        run=run, from_state=run.state, to_state=run.state, at=now, actor=host, reason=text
    )


def watch_runs(*, host: str, now: datetime) -> int:
    """Renew the leases of all runs of ``host``; return their number."""
    return Run.objects.on_host(host).update(watched_at=now)


@transaction.atomic
def adopt_run(*, run: Run, host: str, now: datetime) -> bool:
    """Transfer the lease of a run to ``host``; return False if the row was changed concurrently."""
    adopted = Run.objects.filter(
        pk=run.pk, host=run.host, watched_at=run.watched_at, state__in=ON_A_HOST
    ).update(host=host, watched_at=now)
    if adopted:
        run.host, run.watched_at = host, now
    return bool(adopted)


def reap_lost_runs(*, now: datetime, lease_seconds: float = WATCH_LEASE_SECONDS) -> int:
    """Mark runs with an expired lease as lost; return their number."""
    stale = Run.objects.stale(now=now, lease_seconds=lease_seconds)
    return sum(_lose(run, lease_seconds, now) for run in stale.select_related("job__project"))


def reap_when_steady(*, now: datetime) -> int:
    """Reap lost runs if the database has been reachable for long enough; for the periodic task."""
    gap = timedelta(seconds=REAP_GAP_SECONDS)
    steady = steady_for(purpose="jobs.reap_lost_runs", gap=gap, now=now)
    if steady.total_seconds() < REAP_AFTER_SECONDS:
        return 0
    return reap_lost_runs(now=now, lease_seconds=REAP_AFTER_SECONDS)


@transaction.atomic
def _lose(run: Run, lease_seconds: float, now: datetime) -> bool:
    # Lock the row if it is unchanged: the host may have renewed the lease since.
    if not Run.objects.filter(
        pk=run.pk, host=run.host, watched_at=run.watched_at, state__in=ON_A_HOST
    ).update(watched_at=run.watched_at):
        return False
    reason = _("host %(host)s has not reported for %(seconds)d s") % {
        "host": run.host,
        "seconds": lease_seconds,
    }
    return finish_run(run=run, state=RunState.LOST, reason=reason, now=now)
