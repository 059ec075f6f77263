"""Factories of finished runs with their yields."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from apps.alerts.services.yields import record_yields
from apps.jobs.models import Job, Run
from apps.jobs.states import RunState
from apps.queuestats.services import store_counters
from tests.jobs.factories import make_run
from yardkit.protocol import RunCounters


def ended_run(
    job: Job,
    *,
    at: datetime,
    items: int | None = 1000,
    fields: Mapping[str, int] | None = None,
    success: int = 100,
    failed: int = 0,
    final: bool = True,
    **values: Any,
) -> Run:
    """Create a run that ended at ``at``; ``items`` None: no counters at all."""
    began = at - timedelta(minutes=2)
    values = {"state": RunState.EXITED, "trigger": "cron"} | values
    # Changing a job restarts its interval, so the change lies before the runs.
    Job.objects.filter(pk=job.pk).update(updated_at=began - timedelta(days=1000))
    run = make_run(
        job=job,
        created_at=began,
        started_at=began,
        ended_at=at,
        arguments=values.pop("arguments", job.arguments),
        **values,
    )
    if items is not None:
        message = RunCounters(
            run=run.pk,
            boot="b1",
            seq=1,
            items=items,
            pages=success,
            total=success + failed,
            success=success,
            failed=failed,
            fields={"url": items} if fields is None else dict(fields),
            final=final,
        )
        store_counters(messages=[message], now=at)
    return run


def daily_runs(job: Job, *, until: datetime, days: int, **values: Any) -> None:
    """Create and record one run a day, the last a day before ``until``."""
    for ago in range(days, 0, -1):
        ended_run(job, at=until - timedelta(days=ago), **values)
    record_yields(now=until)
