"""Every write of this app: start, claim, watch, stop and finish runs."""

from __future__ import annotations

import secrets
from datetime import datetime
from typing import Any

from django.db import connection, transaction
from django.utils.translation import gettext as _

from apps.access.models import User
from apps.access.services import changes, record, snapshot
from apps.jobs.errors import JobDisabled, JobHasRuns, MoveRefused, RunNotActive
from apps.jobs.events import RUN_CHANGED
from apps.jobs.models import Job, Run, RunMove
from apps.jobs.states import FINAL, MOVES, ON_A_HOST, RunState
from apps.runtime.services import emit, enqueue
from yardkit import failpoints, topology
from yardkit.protocol import RunQueued

# A runner says every few seconds that it watches its runs; after this long it has gone.
WATCH_LEASE_SECONDS = 30.0


@transaction.atomic
def create_job(*, values: dict[str, Any], actor: User | None) -> Job:
    """Add a job. ``values``: fields of the model, already checked."""
    job = Job.objects.create(**values)
    record(actor=actor, action="jobs.add_job", obj=job, after=snapshot(job))
    return job


@transaction.atomic
def update_job(*, job: Job, values: dict[str, Any], actor: User | None) -> Job:
    """Change the given fields of a job; runs that exist keep the arguments they started with."""
    before = snapshot(job)
    for name, value in values.items():
        setattr(job, name, value)
    job.save(update_fields=[*values, "updated_at"])
    old, new = changes(before, snapshot(job))
    if set(new) - {"updated_at"}:
        record(actor=actor, action="jobs.change_job", obj=job, before=old, after=new)
    return job


@transaction.atomic
def delete_job(*, job: Job, actor: User | None) -> None:
    """Delete a job that never ran.

    Raises:
        JobHasRuns: it has runs, which are the record of what was done.
    """
    if job.runs.exists():
        raise JobHasRuns(_("Job %(name)s has runs; disable it instead.") % {"name": job.name})
    record(actor=actor, action="jobs.delete_job", obj=job, before=snapshot(job))
    job.delete()


@transaction.atomic
def start_run(
    *, job: Job, now: datetime, actor: User | None, arguments: dict[str, Any] | None = None
) -> Run:
    """Queue a run of ``job``; ``arguments`` are laid over the job's own.

    Raises:
        JobDisabled: the job is switched off.
    """
    if not job.enabled:
        raise JobDisabled(_("Job %(name)s is disabled.") % {"name": job.name})
    run = Run.objects.create(
        job=job,
        arguments={**job.arguments, **(arguments or {})},
        requested_by=actor.get_username() if actor else "",
        created_at=now,
    )
    RunMove.objects.create(
        run=run, to_state=RunState.QUEUED, at=now, actor=run.requested_by, reason=""
    )
    record(actor=actor, action="jobs.start_run", obj=run, project=job.project)
    enqueue(key=topology.RUNNERS.name, body=RunQueued(run=run.pk), ttl_seconds=60)
    _tell(run)
    return run


@transaction.atomic
def claim_runs(*, host: str, limit: int, now: datetime) -> list[Run]:
    """Take up to ``limit`` waiting runs for ``host``; no other host can take the same."""
    waiting = Run.objects.waiting().select_related("job__project")
    if connection.features.has_select_for_update_skip_locked:
        waiting = waiting.select_for_update(skip_locked=True, of=("self",))
    claimed = []
    for run in waiting[:limit]:
        boot = secrets.token_hex(4)
        if _move(run, RunState.STARTING, now=now, actor=host, host=host, boot=boot, watched_at=now):
            claimed.append(run)
    failpoints.hit("jobs.claimed")
    return claimed


@transaction.atomic
def mark_running(*, run: Run, pid: int, process_started: float, now: datetime) -> bool:
    """The process is up. False when the run was stopped or lost in the meantime."""
    return _move(
        run,
        RunState.RUNNING,
        now=now,
        actor=run.host,
        pid=pid,
        process_started=process_started,
        started_at=now,
        watched_at=now,
    )


@transaction.atomic
def stop_run(*, run: Run, now: datetime, actor: User | None) -> None:
    """Ask a run to stop; one that nobody has taken yet is cancelled at once.

    Raises:
        RunNotActive: it has already ended.
        MoveRefused: it is already stopping.
    """
    name = actor.get_username() if actor else ""
    run.refresh_from_db()
    before = run.state
    if run.state in FINAL:
        raise RunNotActive(_("Run %(id)s has already ended.") % {"id": run.pk})
    if not (
        (
            run.state == RunState.QUEUED
            and _move(run, RunState.CANCELLED, now=now, actor=name, reason=_("stopped by a person"))
        )
        or _move(run, RunState.STOPPING, now=now, actor=name)
    ):
        raise MoveRefused(_("Run %(id)s is already stopping.") % {"id": run.pk})
    record(
        actor=actor,
        action="jobs.stop_run",
        obj=run,
        project=run.job.project,
        before={"state": before},
        after={"state": run.state},
    )


@transaction.atomic
def finish_run(
    *, run: Run, state: RunState, reason: str, now: datetime, exit_code: int | None = None
) -> bool:
    """Put a run into a final state. False when it was there already: a repeat is harmless."""
    return _move(run, state, now=now, actor=run.host, reason=reason, exit_code=exit_code, pid=None)


def watch_runs(*, host: str, now: datetime) -> int:
    """Say that ``host`` still watches its runs."""
    return Run.objects.on_host(host).update(watched_at=now)


@transaction.atomic
def adopt_run(*, run: Run, host: str, now: datetime) -> bool:
    """``host`` watches the run from now on. False when its old host, or another, was quicker."""
    adopted = Run.objects.filter(
        pk=run.pk, host=run.host, watched_at=run.watched_at, state__in=ON_A_HOST
    ).update(host=host, watched_at=now)
    if adopted:
        run.host, run.watched_at = host, now
    return bool(adopted)


def reap_lost_runs(*, now: datetime) -> int:
    """Runs whose host has fallen silent are lost; their number is returned."""
    lost = 0
    for run in Run.objects.stale(now=now, lease_seconds=WATCH_LEASE_SECONDS).select_related(
        "job__project"
    ):
        reason = _("host %(host)s has not reported for %(seconds)d s") % {
            "host": run.host,
            "seconds": WATCH_LEASE_SECONDS,
        }
        lost += finish_run(run=run, state=RunState.LOST, reason=reason, now=now)
    return lost


def _move(
    run: Run, to: RunState, *, now: datetime, actor: str, reason: str = "", **fields: Any
) -> bool:
    """Guarded update: only from a state that allows it, and only if nobody was faster."""
    if to in FINAL:
        fields["ended_at"] = max(now, run.created_at)
    if reason:
        fields["reason"] = reason
    from_state = _update(run, to, fields)
    if from_state is None:
        return False
    run.state = to
    for name, value in fields.items():
        setattr(run, name, value)
    RunMove.objects.create(
        run=run, from_state=from_state, to_state=to, at=now, actor=actor, reason=reason
    )
    _tell(run)
    return True


def _update(run: Run, to: RunState, fields: dict[str, Any]) -> str | None:
    """The guarded update itself; the state it left, or None when the move is not allowed."""
    for _attempt in range(3):
        from_state = run.state
        if from_state in MOVES[to] and Run.objects.filter(pk=run.pk, state=from_state).update(
            state=to, **fields
        ):
            return from_state
        # Somebody was faster: look again, the move may be allowed from the new state too.
        run.refresh_from_db(fields=["state"])
        if run.state not in MOVES[to]:
            break
    return None


def _tell(run: Run) -> None:
    emit(
        RUN_CHANGED,
        project=run.job.project_id,
        payload={"run": run.pk, "job": run.job_id, "state": run.state, "reason": run.reason},
    )
