"""Celery tasks of jobs. Each calls a service and tolerates repeated or missing execution."""

from __future__ import annotations

import logging
from typing import Any

from celery import shared_task

from apps.jobs.services import purge_jobs, reap_when_steady
from apps.jobs.services.plans import forget_planned_runs, plan_due
from apps.jobs.services.wakeups import PLAN_TASK, mend_wake_ups
from apps.runtime.queries import database_now

logger = logging.getLogger(__name__)


@shared_task(name=PLAN_TASK)
def plan(job: int | None = None, **_later: Any) -> None:
    """Plan the due times of a job; called by beat at each planned time."""
    plan_due(now=database_now(), job=job)


@shared_task(name="jobs.sweep_schedules")
def sweep_schedules(**_later: Any) -> None:
    """Plan due times whose wake-up was lost."""
    decided = plan_due(now=database_now())
    if decided:
        logger.info("the sweep has decided on %d planned runs", decided)
    mend_wake_ups()


@shared_task(name="jobs.forget_planned_runs")
def forget_old(**_later: Any) -> None:
    """Delete planned runs beyond their retention."""
    forgotten = forget_planned_runs(now=database_now())
    if forgotten:
        logger.info("%d old planned runs are forgotten", forgotten)


@shared_task(name="jobs.reap_lost_runs")
def reap_lost(**_later: Any) -> None:
    """Reap runs of silent hosts, which works even if no runner is online."""
    lost = reap_when_steady(now=database_now())
    if lost:
        logger.warning("%d runs of silent hosts are lost", lost)


@shared_task(name="jobs.purge")
def purge(**_later: Any) -> None:
    """Purge jobs whose time to be restored is over, with their runs."""
    purged = purge_jobs(now=database_now())
    if purged:
        logger.info("%d deleted jobs are gone for good", purged)
