"""Services to add, change and clone jobs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.access.models import User
from apps.access.services import changes, has_role, record, snapshot
from apps.access.states import Role
from apps.jobs.errors import JobNameTaken, SecretsUnreadable, TrialNeeded
from apps.jobs.models import ImageTrial, Job
from apps.jobs.services.links import add_link
from apps.jobs.services.schedules import sync_schedule
from apps.jobs.states import TrialState
from yardkit.secretbox import SecretError

# Fields that are not copied to a clone.
_OWN: Final = frozenset(
    {"id", "name", "enabled", "created_at", "updated_at", "deleted_at", "deleted_by"}
)
_COPY = re.compile(r" \(copy(?: [0-9]{1,6})?\)$")
_MOST_COPIES: Final = 1000


@transaction.atomic
def create_job(*, values: dict[str, Any], actor: User | None, now: datetime | None = None) -> Job:
    """Add a job.

    Args:
        values: validated fields of the model. ``secrets`` may be an object of strings.

    Raises:
        JobNameTaken: another job of the project has the name.
    """
    job = Job(**_stored(values, Job()))
    job.image_digest = _judged_digest(job, job, None)
    try:
        with transaction.atomic():
            job.save(force_insert=True)
    except IntegrityError as error:
        raise _save_error(job, error) from error
    _scheduled(job, now)
    record(actor=actor, action="jobs.add_job", obj=job, after=snapshot(job))
    return job


@transaction.atomic
def update_job(
    *,
    job: Job,
    values: dict[str, Any],
    actor: User | None,
    now: datetime | None = None,
    trial: ImageTrial | None = None,
) -> Job:
    """Change the given fields of a job; existing runs keep their arguments.

    Args:
        values: as in ``create_job``, but secrets are merged into the stored ones; None removes one.
        trial: by which the image is activated, passed or not.

    Raises:
        JobNameTaken: another job of the project has the name.
        TrialNeeded: the job takes another image only after a trial that has passed.
    """
    locked = Job.objects.select_for_update().filter(pk=job.pk).first()
    before = snapshot(locked or job)
    for name, value in _stored(values, locked or job).items():
        setattr(job, name, value)
    digest = _judged_digest(locked or job, job, trial)
    try:
        with transaction.atomic():
            job.image_digest = digest
            job.save(update_fields=[*values, "image_digest", "updated_at"])
    except IntegrityError as error:
        raise _save_error(job, error) from error
    _scheduled(job, now)
    old, new = changes(before, snapshot(job))
    given = {*values, *(f"{name}_id" for name in values)}
    old, new = ({k: v for k, v in side.items() if k in given} for side in (old, new))
    if new:
        record(actor=actor, action="jobs.change_job", obj=job, before=old, after=new)
    return job


@transaction.atomic
def clone_job(*, job: Job, actor: User | None, now: datetime, name: str = "") -> Job:
    """Add a disabled copy of ``job``, including its encrypted secrets.

    Args:
        name: of the copy; by default the first unused name of "X (copy)", "X (copy 2)" and so on.

    Raises:
        JobNameTaken: another job has the given name.
    """
    values = {
        field.attname: job.__dict__[field.attname]
        for field in Job._meta.concrete_fields
        if field.attname not in _OWN
    }
    taken = set(Job.objects.filter(project_id=job.project_id).values_list("name", flat=True))
    if name in taken:
        raise JobNameTaken
    clone = Job(**values, name=name or free_name(job.name, taken), enabled=False)
    try:
        with transaction.atomic():
            clone.save(force_insert=True)
    except IntegrityError as error:
        raise _save_error(clone, error) from error
    for link in job.links.select_related("after"):
        # Links to jobs of projects where the actor is not an editor are not cloned.
        if actor is None or has_role(actor, link.after.project_id, Role.EDITOR):
            add_link(job=clone, after=link.after, condition=link.condition, actor=actor)
    _scheduled(clone, now)
    note = f"clone of {job.pk}"
    record(actor=actor, action="jobs.clone_job", obj=clone, after=snapshot(clone), note=note)
    return clone


def free_name(name: str, taken: set[str]) -> str:
    """Return the first of "X (copy)", "X (copy 2)" and so on that is not in ``taken``."""
    longest = Job._meta.get_field("name").max_length or 100
    base = _COPY.sub("", name)
    for number in range(1, _MOST_COPIES + 1):
        suffix = " (copy)" if number == 1 else f" (copy {number})"
        offered = base[: longest - len(suffix)].rstrip() + suffix
        if offered not in taken:
            return offered
    raise JobNameTaken


def _scheduled(job: Job, now: datetime | None) -> None:
    """Update the schedule of the job by its cron expression."""
    sync_schedule(job=job, now=now or timezone.now())


def _stored(values: Mapping[str, Any], job: Job) -> dict[str, Any]:
    """Return the values as the model stores them; secrets become encrypted text."""
    stored = dict(values)
    given = stored.get("secrets")
    if isinstance(given, Mapping):
        try:
            merged = {**job.secret_environment(), **given}
        except SecretError as error:
            raise SecretsUnreadable from error
        left = {name: text for name, text in merged.items() if text is not None}
        stored["secrets"] = json.dumps(left) if left else ""
    return stored


def _judged_digest(before: Job, job: Job, trial: ImageTrial | None) -> str:
    """Return the digest whose trial counts; "" if the job needs none. Raises ``TrialNeeded``."""
    if job.image is None or not job.trial_required:
        return ""
    if trial is not None:
        return trial.image_digest
    if job.image_id == before.image_id:
        return before.image_digest or job.image.digest
    digest = job.image.digest
    passed = ImageTrial.objects.filter(job=job, image=job.image, state=TrialState.PASSED)
    if before.trial_required and before.image_id and not passed.filter(image_digest=digest):
        raise TrialNeeded(fields={"image": [TrialNeeded.detail]})
    return digest


def _save_error(job: Job, error: IntegrityError) -> Exception:
    """Return ``JobNameTaken`` for a violated name constraint, else the error itself."""
    others = Job.objects.filter(project_id=job.project_id, name=job.name).exclude(pk=job.pk)
    return JobNameTaken() if others.exists() else error
