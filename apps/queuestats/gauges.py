"""What can be measured of queues, runs and jobs, and of the measuring itself."""

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

# So many active runs are told of one by one; all of them are counted. Each is seven series.
MOST_RUNS: Final = 200
# Likewise jobs, which are six series each, for so long after the last report of any of their runs.
MOST_JOBS: Final = 200
JOBS_OF: Final = timedelta(minutes=15)
CLOCKS_OF: Final = timedelta(minutes=10)


def _queues() -> dict[str, Reading]:
    found: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in QUEUE}
    for each in read_queues():
        key = ("" if each.project is None else str(each.project), label_of([each.name]))
        values = {
            "queue.ready": each.waiting,
            "queue.unacked": each.taken,
            "queue.consumers": each.readers,
            "queue.oldest_seconds": each.oldest_seconds,
            "queue.problem": float(bool(each.problem)),
        }
        for name, value in values.items():
            if value is not None:
                found[name][key] = float(value)
    return dict(found)


def _runs() -> dict[str, Reading]:
    """Of runs that a host has: those that wait for one have no totals yet. Three queries."""
    begun = Run.objects.active().exclude(state=RunState.QUEUED).order_by("pk")
    rows = begun.values_list("pk", "job__project")[:MOST_RUNS]
    projects = {f"run:{pk}": (str(project), str(pk)) for pk, project in rows}
    totals, centers = run_totals(projects), center_totals(projects)
    found: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in RUN}
    for owner, key in projects.items():
        own = totals[owner]
        if not own.reported:
            continue
        found["run.total"][key] = own.total
        found["run.success"][key] = own.success
        found["run.failed"][key] = own.failed
        found["run.left"][key] = own.left
        found["run.queued"][key] = own.queued
        found["run.in_flight"][key] = own.in_flight
        found["run.balanced"][key] = float(own.balanced and centers[owner].balanced)
    return dict(found)


def _jobs() -> dict[str, Reading]:
    """Of jobs that were heard of lately; the totals of the others do not change."""
    left = active_left()
    found: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in (*LEFT, *JOB)}
    lately = JobCounter.objects.filter(updated_at__gte=timezone.now() - JOBS_OF)
    for row in lately.select_related("job").order_by("-updated_at")[:MOST_JOBS]:
        key = (str(row.job.project_id), str(row.job_id))
        found["job.left"][key] = left.get(row.job_id, 0)
        found["job.all_requests"][key] = row.total
        for name in ("success", "failed", "pages", "items"):
            found[f"job.all_{name}"][key] = getattr(row, name)
    return dict(found)


def _clocks() -> float:
    recent = timezone.now() - CLOCKS_OF
    wrong = SampleSender.objects.exclude(behind_seconds=0).filter(heard_at__gte=recent)
    return float(wrong.count())


QUEUE: Final = {
    "queue.ready": "Messages of a queue that nobody has taken; of a Kafka topic: its lag.",
    "queue.unacked": "Messages that are handed out and not done.",
    "queue.consumers": "Readers of a queue.",
    "queue.oldest_seconds": "For how long the oldest message has waited, where that is known.",
    "queue.problem": "1 while a queue cannot be used or read, else 0.",
}
RUN: Final = {
    "run.total": "Distinct requests of a run so far.",
    "run.success": "Requests of a run that succeeded.",
    "run.failed": "Requests of a run that failed for good.",
    "run.left": "Requests of a run that have not ended: total - success - failed.",
    "run.queued": "Requests that wait inside a run.",
    "run.in_flight": "Requests of a run that are on their way.",
    "run.balanced": "1 while the totals of a run and of its centers balance, else 0.",
}
LEFT: Final = {"job.left": "Requests that the active runs of a job have not ended."}
JOB: Final = {
    "job.all_requests": "Distinct requests of all runs of a job.",
    "job.all_success": "Requests of all runs of a job that succeeded.",
    "job.all_failed": "Requests of all runs of a job that failed for good.",
    "job.all_pages": "Pages of all runs of a job.",
    "job.all_items": "Items of all runs of a job.",
}
metrics.group(QUEUE, _queues, ("project", "queue"))
metrics.group(RUN, _runs, ("project", "run"))
metrics.group(LEFT, _jobs, ("project", "job"), JOB)
metrics.gauge(
    "statistics.wrong_clocks", "Processes that report by a clock that is wrong.", read=_clocks
)
