"""Creation of queued runs."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from apps.jobs.models import Job, Run, RunMove
from apps.jobs.services.notification import notify
from apps.jobs.states import RunState, Trigger
from apps.runtime.services import enqueue
from yardkit import topology
from yardkit.protocol import RunQueued

# Columns that a retry copies from its run.
SAME: Final = (
    "image",
    "image_reference",
    "image_digest",
    "arguments",
    "priority",
    "requests_of",
    "requests_object",
)


def queue_run(
    *,
    job: Job,
    now: datetime,
    trigger: Trigger,
    requested_by: str = "",
    reason: str = "",
    arguments: dict[str, Any] | None = None,
    same_as: Run | None = None,
    **fields: Any,
) -> Run:
    """Insert a run with a snapshot of its job, and wake the runners; requires a transaction.

    ``arguments`` override those of the job. ``same_as``: run whose image and arguments are used
    instead of the job's. ``fields``: further columns.
    """
    values = {name: getattr(same_as, name) for name in SAME} if same_as else _of_job(job)
    if arguments:
        values["arguments"] = {**values["arguments"], **arguments}
    run = Run.objects.create(
        job=job,
        trigger=trigger,
        requested_by=requested_by,
        created_at=now,
        topic=topology.job_topic(job.project.slug, job.name),
        **(values | fields),
    )
    RunMove.objects.create(
        run=run, to_state=RunState.QUEUED, at=now, actor=requested_by, reason=reason
    )
    enqueue(key=topology.RUNNERS.name, body=RunQueued(run=run.pk), ttl_seconds=60)
    notify(run)
    return run


def _of_job(job: Job) -> dict[str, Any]:
    image = job.image
    return {
        "image": image,
        "image_reference": image.reference if image else "",
        "image_digest": (job.image_digest or image.digest) if image else "",
        "arguments": job.arguments,
        "priority": job.priority,
    }
