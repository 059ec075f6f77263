"""The rows by which beat wakes a worker when a schedule is due.

They are wake-ups and no more: they may come too often or not at all, for beat has other rules
about days and about clocks that change. What is due is said by ``Schedule.next_at`` alone, and
the sweep looks at that every few seconds.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Final

from django.db import transaction
from django.utils import timezone

from apps.jobs.engine.cron import Cron, parse_cron
from apps.jobs.models import Schedule
from yardkit import topology

if TYPE_CHECKING:
    from django_celery_beat.models import PeriodicTask

# Beat's models are loaded where they are used: most daemons have neither them nor Celery.
PLAN_TASK: Final = "jobs.plan"
# A wake-up that nobody heard within this time is void: a sweep has done its work.
EXPIRE_SECONDS: Final = 60
# So many rows at most are mended in one go.
BATCH: Final = 500


@transaction.atomic
def ensure_wake_up(schedule_id: int) -> None:
    """Give a schedule the row that fits it, and take away the one it had; safe to repeat."""
    from django_celery_beat.models import CrontabSchedule, PeriodicTask

    schedule = Schedule.objects.select_for_update().filter(pk=schedule_id).first()
    if schedule is None or PeriodicTask.objects.filter(pk=schedule.periodic_task_id).exists():
        return
    name = f"job {schedule.job_id}"
    _forget(PeriodicTask.objects.filter(name=name).select_related("crontab"))
    if schedule.next_at is None:
        return
    # One of its own for each: a shared one could not be deleted.
    crontab = CrontabSchedule.objects.create(
        **_crontab_fields(parse_cron(schedule.cron)), timezone=schedule.time_zone
    )
    task = PeriodicTask.objects.create(
        name=name,
        task=PLAN_TASK,
        crontab=crontab,
        kwargs=json.dumps({"job": schedule.job_id}),
        queue=topology.TASKS,
        expire_seconds=EXPIRE_SECONDS,
        # Without it beat looks back to the beginning, and fires at once.
        last_run_at=timezone.now(),
    )
    Schedule.objects.filter(pk=schedule.pk).update(periodic_task_id=task.pk)


def mend_wake_ups() -> int:
    """What a process that died has left: rows that are missing, rows of schedules that are gone.

    Returns how many were mended.
    """
    from django_celery_beat.models import PeriodicTask

    lost = Schedule.objects.filter(next_at__isnull=False).exclude(
        periodic_task_id__in=PeriodicTask.objects.values("pk")
    )
    missing = list(lost.values_list("pk", flat=True)[:BATCH])
    for schedule_id in missing:
        ensure_wake_up(schedule_id)
    owned = Schedule.objects.filter(periodic_task_id__isnull=False).values("periodic_task_id")
    orphans = PeriodicTask.objects.filter(task=PLAN_TASK).exclude(pk__in=owned)
    ids = list(orphans.values_list("pk", flat=True)[:BATCH])
    for task_id in ids:
        forget_wake_up(task_id)
    return len(missing) + len(ids)


@transaction.atomic
def forget_wake_up(task_id: int) -> None:
    """Take away a row that is no schedule's."""
    from django_celery_beat.models import PeriodicTask

    # Committed before this was called, or else linked in the transaction that made it.
    if not Schedule.objects.filter(periodic_task_id=task_id).exists():
        _forget(PeriodicTask.objects.filter(pk=task_id, task=PLAN_TASK).select_related("crontab"))


def _forget(tasks: Iterable[PeriodicTask]) -> None:
    for task in tasks:
        # The crontab takes the task with it.
        if task.crontab is not None:
            task.crontab.delete()
        else:
            task.delete()


def _crontab_fields(cron: Cron) -> dict[str, str]:
    """The expression for beat, which fires only when both day fields fit."""
    days, weekdays = cron.days, cron.weekdays
    if not cron.both_days:
        days, weekdays = frozenset(range(1, 32)), frozenset(range(7))
    return {
        "minute": _listed(cron.minutes, 60),
        "hour": _listed(cron.hours, 24),
        "day_of_month": _listed(days, 31),
        "month_of_year": _listed(cron.months, 12),
        "day_of_week": _listed(weekdays, 7),
    }


def _listed(values: Collection[int], size: int) -> str:
    return "*" if len(values) == size else ",".join(str(each) for each in sorted(values))
