"""Deletion of jobs: a deleted job is hidden, can be restored for a time, and is then purged."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext as _

from apps.access.errors import NotDeleted
from apps.access.models import User
from apps.access.services import record, snapshot
from apps.jobs.errors import JobHasRuns, JobNameTaken
from apps.jobs.models import Job, Run
from apps.jobs.services.schedules import sync_schedule
from apps.projects.errors import ProjectInUse
from apps.projects.models import Project

# Limit of runs deleted per transaction.
RUNS_AT_ONCE: Final = 500


@transaction.atomic
def delete_job(*, job: Job, actor: User | None, now: datetime | None = None) -> None:
    """Delete a job: hide it with its runs, and stop its schedule.

    The job can be restored for ``DELETED_DAYS``.

    Raises:
        JobHasRuns: a run of the job is active.
    """
    at = now or timezone.now()
    # The start of a run takes the same lock.
    if not Job.objects.select_for_update().filter(pk=job.pk).values_list("pk", flat=True):
        return
    if job.runs.active().exists():
        text = _("Job %(name)s has active runs: stop them first.")
        raise JobHasRuns(text % {"name": job.name})
    before = snapshot(job)
    job.deleted_at = at
    job.deleted_by = actor.get_username() if actor is not None else ""
    job.save(update_fields=["deleted_at", "deleted_by"])
    sync_schedule(job=job, now=at)
    record(actor=actor, action="jobs.delete_job", obj=job, before=before)


@transaction.atomic
def restore_job(*, job: Job, actor: User | None, now: datetime | None = None) -> Job:
    """Restore a deleted job with its runs; its schedule continues from now.

    Raises:
        NotDeleted: the job is not deleted.
        JobNameTaken: another job of the project has taken the name.
    """
    at = now or timezone.now()
    try:
        with transaction.atomic():
            deleted = Job.all_objects.filter(pk=job.pk, deleted_at__isnull=False)
            before = deleted.values("deleted_at", "deleted_by").first()
            restored = deleted.update(deleted_at=None, deleted_by="")
    except IntegrityError as error:
        raise JobNameTaken from error
    if not restored:
        raise NotDeleted
    row = Job.all_objects.select_related("project").get(pk=job.pk)
    sync_schedule(job=row, now=at)
    after = {"deleted_at": None, "deleted_by": ""}
    record(actor=actor, action="jobs.restore_job", obj=row, before=before, after=after)
    return row


def stop_project_schedules(project: Project, now: datetime) -> None:
    """Stop the schedules of a project that is being deleted.

    Raises:
        ProjectInUse: a run of the project is active.
    """
    if Run.objects.active().filter(job__project=project).exists():
        raise ProjectInUse
    _sync_all(project, now)


def resume_project_schedules(project: Project, now: datetime) -> None:
    """Resume the schedules of a restored project, starting from now."""
    _sync_all(project, now)


def purge_jobs(*, now: datetime) -> int:
    """Purge jobs that, or whose project, were deleted more than ``DELETED_DAYS`` ago.

    Their runs are purged too; the audit trail keeps their names. Returns the number of jobs.
    """
    end = now - timedelta(days=settings.DELETED_DAYS)
    old = Job.all_objects.filter(Q(deleted_at__lt=end) | Q(project__deleted_at__lt=end))
    purged = 0
    for job in old.select_related("project").order_by("pk"):
        runs = Run.objects.filter(job=job).order_by("pk").values_list("pk", flat=True)
        while ids := list(runs[:RUNS_AT_ONCE]):
            Run.objects.filter(pk__in=ids).delete()
        with transaction.atomic():
            record(actor=None, action="jobs.purge_job", obj=job, before={"name": job.name})
            job.delete()
        purged += 1
    return purged


def _sync_all(project: Project, now: datetime) -> None:
    jobs = Job.all_objects.filter(project=project, deleted_at=None, schedule__isnull=False)
    for job in jobs.select_related("project").order_by("pk"):
        sync_schedule(job=job, now=now)
