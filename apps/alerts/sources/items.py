"""Items that are rejected, and runs whose data fails its checks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final, cast

from django.db.models import QuerySet
from django.utils.translation import gettext_lazy as _

from apps.alerts.engine.events import EventSource, Occurrence
from apps.alerts.sources.pages import change_page
from apps.datasets.models import DatasetRun
from apps.datasets.states import Origin
from apps.jobs.models import Job, Run

REASON: Final = 200


class ItemsRejected:
    """Ended runs of which items were rejected; recovers when a later run of the job has none."""

    name = "items.rejected"
    title: object = _("items were rejected")
    sentence: object = _(
        "job %(job)s: %(rejected)s items of run %(run)s were rejected (%(reason)s)"
    )
    advice: object = _("Compare the items with the schema of the dataset, and correct one of them.")
    facts: tuple[str, ...] = ("job", "run", "rejected", "stored", "reason")

    def since(self, at: datetime) -> Iterator[Occurrence]:
        """Yield one event per run, once its items are stored."""
        for row, job in _settled(at):
            if row.rejected:
                reason = max(row.reasons, key=lambda text: row.reasons[text], default="")
                yield _occurrence(
                    row, job, rejected=row.rejected, stored=row.stored, reason=reason[:REASON]
                )

    def over(self, open_keys: Mapping[str, datetime], at: datetime) -> set[str]:
        """Return the jobs of whose newest run no item was rejected."""
        return {key for key, row in _newest(open_keys) if not row.rejected}


class CheckFailed:
    """Ended runs whose data fails a check; recovers when a later run of the job passes them."""

    name = "items.check_failed"
    title: object = _("the data of a run fails a check")
    sentence: object = _("job %(job)s: the data of run %(run)s fails %(check)s (%(reason)s)")
    advice: object = _("Look at the items of the run; the site or its spider may have changed.")
    facts: tuple[str, ...] = ("job", "run", "check", "reason", "failed")

    def since(self, at: datetime) -> Iterator[Occurrence]:
        """Yield one event per run, with the first failed check."""
        for row, job in _settled(at):
            failed = _failed(row)
            if failed:
                yield _occurrence(
                    row,
                    job,
                    check=failed[0]["check"],
                    reason=failed[0]["text"][:REASON],
                    failed=len(failed),
                )

    def over(self, open_keys: Mapping[str, datetime], at: datetime) -> set[str]:
        """Return the jobs whose newest run passes all checks."""
        return {key for key, row in _newest(open_keys) if not _failed(row)}


def _failed(row: DatasetRun) -> list[dict[str, Any]]:
    return [result for result in row.checked if not result["ok"]]


def _settled(at: datetime) -> Iterator[tuple[DatasetRun, Job]]:
    rows = (
        DatasetRun.objects.of_items()
        .filter(settled_at__gte=at, dataset__origin=Origin.JOB)
        .exclude(run_number__in=_replays())
        .select_related("dataset")
        .order_by("settled_at")
    )
    jobs = Job.objects.in_bulk({row.dataset.origin_id for row in rows})
    for row in rows:
        if row.dataset.origin_id in jobs:
            yield row, jobs[row.dataset.origin_id]


def _replays() -> QuerySet[Run]:
    """Return runs on kept pages: their data is no news."""
    return Run.objects.filter(replay_of__isnull=False)


def _newest(open_keys: Iterable[str]) -> Iterator[tuple[str, DatasetRun]]:
    """Yield the newest settled run of each job."""
    for key in open_keys:
        rows = DatasetRun.objects.of_items().filter(
            dataset__origin=Origin.JOB, dataset__origin_id=int(key.removeprefix("job:"))
        )
        rows = rows.exclude(run_number__in=_replays())
        row = rows.exclude(settled_at=None).order_by("-run_number").first()
        if row is not None:
            yield key, row


def _occurrence(row: DatasetRun, job: Job, **facts: str | int) -> Occurrence:
    return Occurrence(
        id=f"run:{row.run_number}",
        project=job.project_id,
        key=f"job:{job.pk}",
        at=cast(datetime, row.settled_at),
        facts={"job": job.name, "run": row.run_number, **facts},
        address=change_page("jobs/run", row.run_number),
    )


SOURCES: Final[tuple[EventSource, ...]] = (ItemsRejected(), CheckFailed())
