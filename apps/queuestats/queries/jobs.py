"""Totals of a job, over all of its runs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from apps.jobs.models import Job, Run
from apps.queuestats.models import JobCounter
from apps.queuestats.queries.totals import run_totals


@dataclass(frozen=True, slots=True)
class JobTotals:
    """Totals over all runs of a job: ``total = success + failed + left + undone``.

    ``left`` counts pending requests of active runs. ``undone`` counts requests that were pending
    when their run ended, or when a restart replaced their execution.
    """

    total: int = 0
    success: int = 0
    failed: int = 0
    left: int = 0
    pages: int = 0
    items: int = 0
    bytes_received: int = 0
    runs: int = 0
    active_runs: int = 0
    updated_at: datetime | None = None

    @property
    def undone(self) -> int:
        """Requests that were still pending when their run or execution ended."""
        return self.total - self.success - self.failed - self.left


def job_totals(job: Job) -> JobTotals:
    """Return the totals of a job. Four queries for any number of runs."""
    row = JobCounter.objects.filter(job=job).first() or JobCounter(job=job)
    return JobTotals(
        total=row.total,
        success=row.success,
        failed=row.failed,
        left=active_left([job.pk]).get(job.pk, 0),
        pages=row.pages,
        items=row.items,
        bytes_received=row.bytes_received,
        runs=Run.objects.filter(job=job).count(),
        active_runs=Run.objects.active().filter(job=job).count(),
        updated_at=row.updated_at,
    )


def active_left(jobs: Collection[int] | None = None) -> dict[int, int]:
    """Return the pending requests of active runs by job; of all jobs by default. Two queries."""
    active = Run.objects.active().order_by()
    if jobs is not None:
        active = active.filter(job__in=jobs)
    owners = {f"run:{pk}": job for pk, job in active.values_list("pk", "job")}
    left: dict[int, int] = {}
    for owner, totals in run_totals(owners).items():
        left[owners[owner]] = left.get(owners[owner], 0) + totals.left
    return left
