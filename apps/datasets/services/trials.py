"""Trials of images: run on the kept pages of an earlier run, compare the items, activate."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import msgspec
from django.db import transaction
from django.utils.translation import gettext as _

from apps.access.models import User
from apps.access.services import record
from apps.datasets.engine.errors import DatasetError
from apps.datasets.engine.trials import NewFailure, TrialLimits, TrialResult, judge
from apps.datasets.models import DatasetRun
from apps.datasets.queries.items import dataset_of_run, open_reader
from apps.datasets.queries.requests import failure_groups, open_requests
from apps.datasets.states import Kind
from apps.jobs.errors import JobDeleted, NothingRecorded, TrialNotEnded, TrialNoteNeeded
from apps.jobs.models import ImageTrial, Job, Run
from apps.jobs.services import update_job
from apps.jobs.services.run_queue import queue_run
from apps.jobs.states import FINAL, RunState, TrialState, Trigger
from apps.projects.models import Image
from apps.queuestats.queries import run_totals

# An ended run without items is judged after this time: items may still be on their way.
PATIENCE: Final = timedelta(seconds=60)
_MOST_AT_ONCE: Final = 20
_LATEST: Final = 100


def recorded_run(job: Job) -> Run | None:
    """Return the newest ended run of a job of which all pages are kept, not only the failed."""
    pages = DatasetRun.objects.filter(
        dataset__kind=Kind.PAGES, dataset__origin_id=job.pk, deleted_at=None, stored__gt=0
    )
    kept = dict(pages.order_by("-run_number").values_list("run_number", "stored")[:_LATEST])
    runs = job.runs.live().filter(requests_of=None, state__in=FINAL, pk__in=kept)
    for run in runs.order_by("-id"):
        if kept[run.pk] >= (run.requests_total or 0) - (run.requests_failed or 0):
            return run
    return None


@transaction.atomic
def start_trial(*, job: Job, image: Image, actor: User | None, now: datetime) -> ImageTrial:
    """Queue a run of ``job`` with ``image`` on the pages of its newest recorded run.

    It sends no request to any site, so the job's overlap policy does not apply. Raises
    ``NothingRecorded`` and ``JobDeleted``.
    """
    locked = Job.objects.select_for_update(no_key=True).filter(pk=job.pk).first()
    if locked is None:
        raise JobDeleted
    recorded = recorded_run(locked)
    if recorded is None:
        raise NothingRecorded
    run = queue_run(
        job=locked,
        now=now,
        trigger=Trigger.PERSON,
        requested_by=actor.get_username() if actor else "",
        reason=_("trial of %(image)s on the pages of run %(run)d")
        % {"image": image, "run": recorded.pk},
        same_as=recorded,
        image=image,
        image_reference=image.reference,
        image_digest=image.digest,
        replay_of=recorded,
    )
    trial = ImageTrial.objects.create(
        job=locked,
        image=image,
        image_digest=image.digest,
        recorded_run=recorded,
        run=run,
        created_at=now,
        created_by=run.requested_by,
    )
    after = {"image": image.reference, "run": run.pk, "recorded_run": recorded.pk}
    record(actor=actor, action="jobs.start_trial", obj=trial, project=job.project, after=after)
    return trial


@transaction.atomic
def activate_trial(*, trial: ImageTrial, actor: User, note: str, now: datetime) -> ImageTrial:
    """Make the image of an ended trial the image of its job.

    ``note``: why, if the trial was not passed. Raises ``TrialNotEnded``, ``TrialNoteNeeded`` and
    the errors of ``update_job``.
    """
    row = (
        ImageTrial.objects.select_for_update()
        .select_related("job__project", "image")
        .get(pk=trial.pk)
    )
    if row.state == TrialState.RUNNING:
        raise TrialNotEnded
    note = note.strip()
    if row.state != TrialState.PASSED and not note:
        raise TrialNoteNeeded(fields={"note": [TrialNoteNeeded.detail]})
    update_job(job=row.job, values={"image": row.image}, actor=actor, trial=row)
    row.activated_at, row.activated_by, row.note = now, actor.get_username(), note
    row.save(update_fields=["activated_at", "activated_by", "note"])
    after = {"image": row.image.reference, "state": row.state}
    project = row.job.project
    record(
        actor=actor, action="jobs.activate_trial", obj=row, project=project, after=after, note=note
    )
    return row


def step(*, now: datetime) -> bool:
    """Judge the trials whose runs have ended; return whether there was any."""
    rows = ImageTrial.objects.filter(state=TrialState.RUNNING).select_related(
        "job", "run", "recorded_run"
    )
    return any(_step(trial, now) for trial in rows.order_by("id")[:_MOST_AT_ONCE])


def _step(trial: ImageTrial, now: datetime) -> bool:
    run, recorded = trial.run, trial.recorded_run
    if run is None or recorded is None:
        return _end(trial, TrialState.ABORTED, now, reason=_("One of its runs was deleted."))
    if run.state not in FINAL or run.ended_at is None:
        return False
    row = DatasetRun.objects.of_items().filter(run_number=run.pk).first()
    if (row is None or row.settled_at is None) and run.ended_at > now - PATIENCE:
        return False
    if run.started_at is None:
        return _end(trial, TrialState.ABORTED, now, reason=run.reason)
    try:
        result = _result(recorded, run)
    except DatasetError as error:
        return _end(trial, TrialState.ABORTED, now, reason=str(error))
    job = trial.job
    limits = TrialLimits(
        lost=job.trial_lost_percent,
        changed=job.trial_changed_percent,
        failed=job.max_failed_percent,
    )
    result = judge(result, limits)
    state = TrialState.FAILED if result.excesses else TrialState.PASSED
    return _end(trial, state, now, result=result)


def _end(
    trial: ImageTrial,
    state: TrialState,
    now: datetime,
    *,
    reason: str = "",
    result: TrialResult | None = None,
) -> bool:
    rows = ImageTrial.objects.filter(pk=trial.pk, state=TrialState.RUNNING)
    shown = msgspec.to_builtins(result) if result else {}
    return bool(rows.update(state=state, ended_at=now, reason=reason, result=shown))


def _result(recorded: Run, run: Run) -> TrialResult:
    """Return the numbers of both runs, and the differences of their items if they have a key."""
    totals = run_totals([recorded.owner, run.owner])
    old, new = totals[recorded.owner], totals[run.owner]
    rows = DatasetRun.objects.of_items().filter(run_number__in=[recorded.pk, run.pk])
    stored = dict(rows.values_list("run_number", "stored"))
    result = TrialResult(
        items=(stored.get(recorded.pk, 0), stored.get(run.pk, 0)),
        requests=(old.total, new.total),
        failed=(old.failed, new.failed),
        seconds=(_seconds(recorded), _seconds(run)),
        succeeded=run.state == RunState.EXITED,
        exceptions=_exceptions(recorded, run),
    )
    dataset = dataset_of_run(recorded)
    if dataset is None or not dataset.key_fields:
        return result
    with open_reader(dataset, [recorded.pk, run.pk]) as reader:
        found = reader.compare(recorded.pk, run.pk)
    return msgspec.structs.replace(
        result,
        keyed=True,
        added=found.added,
        removed=found.removed,
        changed=found.changed,
        equal=found.equal,
    )


def _exceptions(recorded: Run, run: Run) -> tuple[NewFailure, ...]:
    """Return the exceptions of callbacks that the recorded run does not have."""
    with open_requests(recorded) as reader:
        known = {failure.group for failure in failure_groups(reader)}
    with open_requests(run) as reader:
        failures = failure_groups(reader)
    return tuple(
        NewFailure(failure.error, failure.count, failure.url)
        for failure in failures
        if failure.traceback and failure.group not in known
    )


def _seconds(run: Run) -> float:
    if run.started_at is None or run.ended_at is None:
        return 0.0
    return round((run.ended_at - run.started_at).total_seconds(), 1)
