"""Runs on the kept pages of an earlier run."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction
from django.utils.translation import gettext as _

from apps.access.models import User
from apps.access.services import record
from apps.datasets.models import DatasetRun
from apps.datasets.states import Kind
from apps.jobs.errors import JobDeleted, NothingRecorded
from apps.jobs.models import Job, Run
from apps.jobs.services.run_queue import queue_run
from apps.jobs.states import FINAL, ReplayMissing, Trigger


@transaction.atomic
def replay_run(*, run: Run, actor: User | None, now: datetime, missing: str) -> Run:
    """Queue a run with the image and arguments of ``run`` on the pages that were kept of it.

    ``missing``: what becomes of requests whose page was not kept (``ReplayMissing``). The job's
    overlap policy does not apply. Raises ``NothingRecorded`` and ``JobDeleted``.
    """
    job = Job.objects.select_related("project").filter(pk=run.job_id).first()
    if job is None:
        raise JobDeleted
    kept = DatasetRun.objects.filter(
        dataset__kind=Kind.PAGES, run_number=run.pk, deleted_at=None, stored__gt=0
    )
    if run.state not in FINAL or not kept.exists():
        raise NothingRecorded(_("No pages of the run are kept, or it has not ended."))
    replay = queue_run(
        job=job,
        now=now,
        trigger=Trigger.PERSON,
        requested_by=actor.get_username() if actor else "",
        reason=_("replay of run %(run)d") % {"run": run.pk},
        same_as=run,
        replay_of=run,
        replay_missing=ReplayMissing(missing),
    )
    after = {"replay_of": run.pk, "missing": missing}
    record(actor=actor, action="jobs.replay_run", obj=replay, project=job.project, after=after)
    return replay
