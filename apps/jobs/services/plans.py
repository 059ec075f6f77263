"""Planned runs: one row for each time of a schedule, and a run if the policy allows it.

The planner holds the job's lock and writes the rows, the runs and ``planned_through`` in one
transaction: even after a crash, or with several planners, each time is planned exactly once.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Final

from django.db import transaction
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from apps.jobs.engine.cron import parse_cron, times_between
from apps.jobs.engine.due_times import CATCH_UP_LIMIT, DueTimeDecision, DueTimeVerdict, decide
from apps.jobs.errors import JobRunning, TooManyWaiting
from apps.jobs.models import Job, PlannedRun, Run, Schedule
from apps.jobs.services.overlap import make_way
from apps.jobs.services.run_queue import queue_run
from apps.jobs.services.schedules import next_time, sync_schedule
from apps.jobs.states import OverlapPolicy, PlanOutcome, Trigger
from apps.runtime.errors import DATABASE_AWAY
from yardkit import failpoints

logger = logging.getLogger(__name__)

# Rows per transaction, and transactions per call.
CHUNK: Final = 1000
CHUNKS: Final = 50
# Delay before a failed schedule is tried again.
PARKED: Final = timedelta(hours=1)

# Retention of planned runs.
KEEP: Final = timedelta(days=90)

_OUTCOMES: Final = {
    DueTimeVerdict.START: PlanOutcome.STARTED,
    DueTimeVerdict.START_LATE: PlanOutcome.LATE,
    DueTimeVerdict.CATCH_UP: PlanOutcome.CAUGHT_UP,
}


def plan_due(*, now: datetime, job: int | None = None) -> int:
    """Plan all times up to ``now``, of all jobs or of one job; return their number.

    Uses at most ``CHUNKS`` transactions; the next call plans the rest. Schedules that are locked by
    another planner are skipped.
    """
    decided = 0
    left = CHUNKS
    while left > 0:
        due = list(_due(now, job).order_by("next_at", "pk").values_list("pk", flat=True)[:left])
        outcomes = [_plan_safely(schedule, now) for schedule in due]
        planned = [count for count in outcomes if count is not None]
        decided += sum(planned)
        left -= len(due)
        if not planned:
            break
    return decided


def forget_planned_runs(*, now: datetime) -> int:
    """Delete planned runs beyond their retention, in small transactions; return their number.

    ``planned_through`` prevents that their times are planned again.
    """
    old = PlannedRun.objects.filter(planned_at__lt=now - KEEP)
    forgotten = 0
    while ids := list(old.order_by("planned_at").values_list("pk", flat=True)[:CHUNK]):
        deleted, _by_model = PlannedRun.objects.filter(pk__in=ids).delete()
        forgotten += deleted
        if not deleted:
            break
    return forgotten


def _due(now: datetime, job: int | None) -> QuerySet[Schedule]:
    due = Schedule.objects.filter(next_at__lte=now)
    return due if job is None else due.filter(job_id=job)


def _plan_safely(schedule_id: int, now: datetime) -> int | None:
    """Call ``_plan``; postpone a schedule that fails, so that the others are planned."""
    try:
        return _plan(schedule_id, now)
    except DATABASE_AWAY:
        raise
    except Exception:
        logger.exception("schedule %d cannot be planned; it is parked", schedule_id)
        # planned_through is unchanged, so that the times of the delay are planned afterwards.
        Schedule.objects.filter(pk=schedule_id, next_at__lte=now).update(next_at=now + PARKED)
        return None


def _plan(schedule_id: int, now: datetime) -> int | None:
    """Plan the next chunk; return None if nothing is due, or another planner holds the lock."""
    with transaction.atomic():
        job = (
            # Lock the job first, in the same order as its changes do. ``no_key``: runs may still be
            # added.
            Job.objects.select_for_update(of=("self",), no_key=True, skip_locked=True)
            .select_related("project", "image")
            .filter(schedule=schedule_id)
            .first()
        )
        if job is None:
            return None
        schedule = Schedule.objects.select_for_update().get(pk=schedule_id)
        if schedule.next_at is None or schedule.next_at > now:
            return None
        if not job.enabled or (schedule.cron, schedule.time_zone) != (job.cron, job.time_zone):
            # The job was changed without the services: use its cron expression from now on.
            sync_schedule(job=job, now=now)
            return 0
        decided = _plan_chunk(schedule, job, now)
        failpoints.hit("jobs.plan.before_commit")
    failpoints.hit("jobs.plan.after_commit")
    return decided


def _plan_chunk(schedule: Schedule, job: Job, now: datetime) -> int:
    wanted = CHUNK + CATCH_UP_LIMIT
    cron = parse_cron(schedule.cron)
    times = times_between(cron, schedule.time_zone, schedule.planned_through, now, wanted)
    newer_follow = len(times) == wanted
    if newer_follow:
        times = times[:CHUNK]
    decisions = decide(times, now=now, policy=job.misfire, newer_follow=newer_follow)
    # Times that have a row: the clock was set back, or the expression changed back and forth.
    known = set(
        schedule.planned_runs.filter(planned_at__in=times).values_list("planned_at", flat=True)
    )
    rows = [_row(schedule, job, due, now) for due in decisions if due.planned_at not in known]
    PlannedRun.objects.bulk_create(rows)
    through = times[-1] if newer_follow else max(now, schedule.planned_through)
    Schedule.objects.filter(pk=schedule.pk).update(
        planned_through=through, next_at=next_time(schedule, through), updated_at=now
    )
    return len(rows)


def _row(schedule: Schedule, job: Job, decision: DueTimeDecision, now: datetime) -> PlannedRun:
    row = PlannedRun(schedule=schedule, planned_at=decision.planned_at, decided_at=now)
    outcome = _OUTCOMES.get(decision.verdict)
    if outcome is None:
        row.outcome, row.reason = PlanOutcome.MISSED, _why_missed(decision, now)
        return row
    row.run, row.reason = _start(job, decision.planned_at, now)
    row.outcome = outcome if row.run is not None else PlanOutcome.SKIPPED
    return row


def _why_missed(decision: DueTimeDecision, now: datetime) -> str:
    minutes = {"minutes": (now - decision.planned_at).total_seconds() // 60}
    if decision.verdict is DueTimeVerdict.REPLACED:
        return _("missed by %(minutes)d min; a later run replaces it") % minutes
    if decision.verdict is DueTimeVerdict.TOO_MANY:
        text = _("missed by %(minutes)d min; only the last %(limit)d are caught up")
        return text % {**minutes, "limit": CATCH_UP_LIMIT}
    return _("missed by %(minutes)d min") % minutes


def _start(job: Job, planned_at: datetime, now: datetime) -> tuple[Run | None, str]:
    """Queue the run if the overlap policy allows it; return the run, or the reason of the skip."""
    newest = job.runs.active().live().order_by("-id").values_list("pk", flat=True).first()
    instead = _("replaced by a planned run")
    try:
        behind = make_way(job=job, overlap=job.overlap, now=now, actor=None, reason=instead)
    except JobRunning as error:
        return None, _("run %(run)d was active") % {"run": error.run}
    except TooManyWaiting as error:
        return None, error.text
    reason = ""
    if newest is not None and job.overlap == OverlapPolicy.REPLACE:
        reason = _("replaces run %(run)d") % {"run": newest}
    elif behind is not None:
        reason = _("after run %(run)d") % {"run": behind.pk}
    return _queue(job, planned_at, now, behind), reason


def _queue(job: Job, planned_at: datetime, now: datetime, waits_for: Run | None) -> Run:
    reason = _("planned for %(time)s UTC") % {"time": f"{planned_at:%Y-%m-%d %H:%M}"}
    return queue_run(job=job, now=now, trigger=Trigger.CRON, reason=reason, waits_for=waits_for)
