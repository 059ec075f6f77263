"""Services of schedules."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from apps.jobs.engine.cron import next_times, parse_cron
from apps.jobs.models import Job, Schedule
from apps.jobs.services.wakeups import ensure_wake_up


@transaction.atomic
def sync_schedule(*, job: Job, now: datetime) -> Schedule | None:
    """Update the schedule by the job's fields; called after each change of a job.

    If the expression or time zone was changed, or the job enabled, planning starts from ``now``:
    earlier times are not planned. Planned runs of the past are kept. The schedule of a deleted row
    is deleted by cascade.
    """
    if job.pk is None:
        return None
    schedule = Schedule.objects.select_for_update().filter(job=job).first()
    if schedule is None:
        if not job.cron:
            return None
        schedule, _created = Schedule.objects.select_for_update().get_or_create(
            job=job, defaults={"cron": "", "time_zone": job.time_zone, "planned_through": now}
        )
    runs = bool(job.cron) and job.enabled and not job.is_gone
    asleep = schedule.next_at is None
    if runs is not asleep and (schedule.cron, schedule.time_zone) == (job.cron, job.time_zone):
        return schedule
    schedule.cron, schedule.time_zone, schedule.planned_through = job.cron, job.time_zone, now
    schedule.next_at = next_time(schedule, now) if runs else None
    schedule.periodic_task_id = None
    schedule.save()
    # After the commit: each change of beat's rows locks one shared row, and a long transaction that
    # holds this lock could cause a deadlock.
    transaction.on_commit(lambda: ensure_wake_up(schedule.pk), robust=True)
    return schedule


def next_time(schedule: Schedule, after: datetime) -> datetime | None:
    """Return the first planned time after ``after``; None without a cron expression."""
    if not schedule.cron:
        return None
    return next(iter(next_times(parse_cron(schedule.cron), schedule.time_zone, after, 1)), None)
