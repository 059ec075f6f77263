"""Metrics of queues, runs, jobs, and clocks of reporting processes."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from django.utils import timezone

from apps.jobs.models import Run
from apps.jobs.states import RunState
from apps.queuestats.models import JobCounter, SampleSender
from apps.queuestats.queries import center_totals, run_totals
from apps.queuestats.queries.jobs import active_left
from apps.queuestats.queries.measurements import label_of, read_queues
from yardkit import metrics
from yardkit.metrics import Reading

# Active runs with series of their own; each has seven series.
MAX_RUNS: Final = 200
# Jobs with series of their own, up to 15 minutes after the last report; each has six series.
MAX_JOBS: Final = 200
JOB_REPORT_AGE: Final = timedelta(minutes=15)
CLOCK_REPORT_AGE: Final = timedelta(minutes=10)


def _queues() -> dict[str, Reading]:
    readings: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in QUEUE}
    for queue in read_queues():
        key = ("" if queue.project is None else str(queue.project), label_of([queue.name]))
        values = {
            "queue.ready": queue.waiting,
            "queue.unacked": queue.taken,
            "queue.consumers": queue.readers,
            "queue.oldest_seconds": queue.oldest_seconds,
            "queue.problem": float(bool(queue.problem)),
        }
        for name, value in values.items():
            if value is not None:
                readings[name][key] = float(value)
    return dict(readings)


def _runs() -> dict[str, Reading]:
    """Read runs that have a host; queued ones have no counters yet. Three queries."""
    placed = Run.objects.active().exclude(state=RunState.QUEUED).order_by("pk")
    rows = placed.values_list("pk", "job__project")[:MAX_RUNS]
    projects = {f"run:{pk}": (str(project), str(pk)) for pk, project in rows}
    totals, centers = run_totals(projects), center_totals(projects)
    readings: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in RUN}
    for owner, key in projects.items():
        run = totals[owner]
        if not run.reported:
            continue
        for name in ("total", "success", "failed", "left", "queued", "in_flight"):
            readings[f"run.{name}"][key] = getattr(run, name)
        readings["run.balanced"][key] = float(run.balanced and centers[owner].balanced)
    return dict(readings)


def _jobs() -> dict[str, Reading]:
    """Read jobs with recent reports; the totals of the others do not change."""
    left = active_left()
    readings: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in (*LEFT, *JOB)}
    recent = JobCounter.objects.filter(updated_at__gte=timezone.now() - JOB_REPORT_AGE)
    for row in recent.select_related("job").order_by("-updated_at")[:MAX_JOBS]:
        key = (str(row.job.project_id), str(row.job_id))
        readings["job.left"][key] = left.get(row.job_id, 0)
        readings["job.all_requests"][key] = row.total
        for name in ("success", "failed", "pages", "items"):
            readings[f"job.all_{name}"][key] = getattr(row, name)
    return dict(readings)


def _clocks() -> float:
    recent = timezone.now() - CLOCK_REPORT_AGE
    wrong = SampleSender.objects.exclude(behind_seconds=0).filter(heard_at__gte=recent)
    return float(wrong.count())


QUEUE: Final = {
    "queue.ready": "Undelivered messages; the lag of a Kafka topic.",
    "queue.unacked": "Delivered, unacknowledged messages.",
    "queue.consumers": "Consumers.",
    "queue.oldest_seconds": "Age of the oldest message, if known.",
    "queue.problem": "1 while the queue cannot be read, else 0.",
}
RUN: Final = {
    "run.total": "Distinct requests.",
    "run.success": "Succeeded requests.",
    "run.failed": "Failed requests.",
    "run.left": "Pending requests: total - success - failed.",
    "run.queued": "Requests queued in the run.",
    "run.in_flight": "Requests sent, without a response yet.",
    "run.balanced": "1 while all requests are accounted for, else 0.",
}
LEFT: Final = {"job.left": "Pending requests of active runs."}
JOB: Final = {
    "job.all_requests": "Distinct requests of all runs.",
    "job.all_success": "Succeeded requests of all runs.",
    "job.all_failed": "Failed requests of all runs.",
    "job.all_pages": "Pages of all runs.",
    "job.all_items": "Items of all runs.",
}
metrics.group(QUEUE, _queues, ("project", "queue"))
metrics.group(RUN, _runs, ("project", "run"))
metrics.group(LEFT, _jobs, ("project", "job"), JOB)
metrics.gauge(
    "statistics.wrong_clocks",
    "Reporting processes whose clock is wrong by more than 5 s.",
    read=_clocks,
)
