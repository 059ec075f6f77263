"""Retries and following jobs, queued in the transaction that ends a run."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from django.utils.translation import gettext as _

from apps.access.services import record
from apps.jobs.engine.graph import depths
from apps.jobs.errors import JobRunning, TooManyWaiting
from apps.jobs.models import Job, JobLink, Run
from apps.jobs.services.overlap import make_way
from apps.jobs.services.retries import retry_if_wanted
from apps.jobs.services.run_queue import queue_run
from apps.jobs.states import LinkCondition, RunState, Trigger

# A cancelled run counts as neither succeeded nor failed.
CONDITIONS: Final[dict[str, tuple[LinkCondition, ...]]] = {
    RunState.EXITED: (LinkCondition.SUCCEEDED, LinkCondition.ALWAYS),
    RunState.FAILED: (LinkCondition.FAILED, LinkCondition.ALWAYS),
    RunState.LOST: (LinkCondition.FAILED, LinkCondition.ALWAYS),
    RunState.CANCELLED: (LinkCondition.ALWAYS,),
}


def follow_up(run: Run, *, now: datetime) -> None:
    """Queue the retry by the job's retry rules, else the runs of the linked jobs.

    While a run is retried its followers are not queued; they follow the last retry. Nothing follows
    a run on kept pages.
    """
    if run.replay_of_id is not None:
        return
    if retry_if_wanted(run, now=now) is None:
        queue_followers(run, now=now)


def queue_followers(run: Run, *, now: datetime) -> list[Run]:
    """Queue one run for each link whose condition matches; called once for each run."""
    links = list(
        JobLink.objects.filter(after_id=run.job_id, condition__in=CONDITIONS[run.state])
        .order_by("job_id")
        .values_list("job_id", flat=True)
    )
    if len(links) > 1:
        # Lock several jobs in topological order of their links, to avoid deadlocks.
        depth = depths(JobLink.objects.values_list("after_id", "job_id"))
        links.sort(key=lambda job: (depth.get(job, 0), job))
    return [follower for job in links if (follower := _follow(job, run, now)) is not None]


def _follow(job_id: int, run: Run, now: datetime) -> Run | None:
    # The run's row is locked already. No holder of this job's lock waits for that row: links are
    # acyclic, and the run's job precedes this job.
    job = (
        Job.objects.select_for_update(of=("self",), no_key=True)
        .select_related("project", "image")
        .filter(pk=job_id)
        .first()
    )
    if job is None:
        return None
    detail = {"run": run.pk, "job": run.job.name, "state": RunState(run.state).label}
    if not job.enabled:
        text = _("run %(run)d of %(job)s has ended (%(state)s); this job is disabled")
        _note(job, text % detail)
        return None
    try:
        behind = make_way(job=job, overlap=job.overlap, now=now, actor=None)
    except JobRunning as error:
        text = _("run %(run)d of %(job)s has ended (%(state)s); run %(active)d was active")
        _note(job, text % {**detail, "active": error.run})
        return None
    except TooManyWaiting as error:
        text = _("run %(run)d of %(job)s has ended (%(state)s); %(why)s")
        _note(job, text % {**detail, "why": error.text})
        return None
    return queue_run(
        job=job,
        now=now,
        trigger=Trigger.LINK,
        caused_by=run,
        reason=_("run %(run)d of %(job)s has ended (%(state)s)") % detail,
        waits_for=behind,
    )


def _note(job: Job, note: str) -> None:
    record(actor=None, action="jobs.skip_follower", obj=job, note=note)
