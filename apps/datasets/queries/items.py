"""Items of datasets for pages, REST and the command line."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Final

import msgspec
from django.db.models import Q, QuerySet

from apps.datasets.engine.item_types import File
from apps.datasets.engine.reader import TIMEOUT_SECONDS, ItemReader
from apps.datasets.models import DataFile, Dataset, DatasetRun
from apps.datasets.states import Kind, Level, Origin
from apps.jobs.models import Job, Run
from apps.queuestats.queries import RunTotals, run_totals
from apps.runtime.services.objects import shared_objects
from yardkit.items.columns import Columns
from yardkit.items.segments import FieldStatistics

if TYPE_CHECKING:
    from collections.abc import Iterable


def open_reader(
    dataset: Dataset,
    runs: Iterable[int] | None = None,
    *,
    timeout_seconds: float = TIMEOUT_SECONDS,
    since: int | None = None,
    days: Sequence[date] | None = None,
    hidden: Collection[str] = (),
) -> ItemReader:
    """Return a reader of some runs of a dataset; of all but replays without ``runs``. One query.

    ``since``: only files with batches from this one on. ``days``: only files that may have items
    of these days. ``hidden``: fields that queries cannot name.
    """
    files = DataFile.objects.filter(dataset=dataset)
    if runs is not None:
        files = files.filter(run_number__in=list(runs))
    else:
        files = files.exclude(run_number__in=replays(dataset))
    if since is not None:
        files = files.filter(last_batch__gte=since)
    if days is not None:
        # A segment may have items of several days.
        files = files.filter(Q(day__in=days) | Q(day=None))

    def manifest() -> list[File]:
        rows = files.values_list(
            "path", "run_number", "items", "level", "first_batch", "last_batch", "raw_bytes"
        )
        return [
            File(path, run, items, first if level == Level.SEGMENT else None, first, last, size)
            for path, run, items, level, first, last, size in rows
        ]

    return ItemReader(
        shared_objects(),
        manifest(),
        Columns([column for column in dataset.columns if column["field"] not in hidden]),
        key_fields=dataset.key_fields,
        timeout_seconds=timeout_seconds,
        manifest=manifest,
    )


# Reason of items that a run has reported and that had not arrived when its data was settled: its
# process was killed before it had sent them.
NEVER_SENT: Final = "not sent before the process ended"


@dataclass(frozen=True, slots=True)
class ItemAccounting:
    """yielded = stored + rejected + dropped + in flight. ``reasons``: of what is not stored."""

    yielded: int = 0
    stored: int = 0
    rejected: int = 0
    dropped: int = 0
    flagged: int = 0
    deleted: int = 0
    reasons: dict[str, int] | None = None

    @property
    def in_flight(self) -> int:
        """Items that the run has yielded and the writer has not stored yet."""
        return max(0, self.yielded - self.stored - self.rejected - self.dropped)

    @property
    def balanced(self) -> bool:
        """Whether no more items are stored than were yielded, as far as the run has reported."""
        return self.yielded >= self.stored + self.rejected + self.dropped

    def as_dict(self) -> dict[str, object]:
        """Return the values for REST and pages."""
        return {
            "yielded": self.yielded,
            "stored": self.stored,
            "rejected": self.rejected,
            "dropped": self.dropped,
            "in_flight": self.in_flight,
            "flagged": self.flagged,
            "deleted": self.deleted,
            "reasons": self.reasons or {},
        }


def run_accounting(run_id: int, totals: RunTotals | None = None) -> ItemAccounting:
    """Return the accounting of a run's items. Two queries, one with the run's ``totals``.

    The run reports its counters every few seconds, the writer stores items meanwhile: the larger of
    both numbers is what the run has yielded. What has not arrived when the run is settled counts as
    dropped, until it comes.
    """
    totals = totals or run_totals([f"run:{run_id}"])[f"run:{run_id}"]
    row = DatasetRun.objects.of_items().filter(run_number=run_id).first()
    dropped = sum(totals.dropped.values())
    stored, rejected = (row.stored, row.rejected) if row else (0, 0)
    yielded = max(totals.items, stored + rejected + dropped)
    reasons = {**(row.reasons if row else {}), **totals.dropped}
    if row and row.settled_at and (missing := yielded - stored - rejected - dropped):
        dropped += missing
        reasons[NEVER_SENT] = missing
    return ItemAccounting(
        yielded=yielded,
        stored=stored,
        rejected=rejected,
        dropped=dropped,
        flagged=row.flagged if row else 0,
        deleted=row.deleted_items if row else 0,
        reasons=reasons,
    )


@dataclass(frozen=True, slots=True)
class FieldSummary:
    """One field over the items of some runs; ``share`` of items that have a value."""

    field: str
    count: int
    share: float
    types: list[str]
    low: str
    high: str


def summaries(runs: Sequence[DatasetRun]) -> list[FieldSummary]:
    """Return the fields of some runs with what is known at once, in the order of the columns."""
    stored = sum(run.stored for run in runs)
    merged: dict[str, FieldStatistics] = {}
    for run in runs:
        for name, values in run.fields.items():
            known = merged.get(name, FieldStatistics())
            merged[name] = known.merged(msgspec.convert(values, FieldStatistics))
    return [
        FieldSummary(
            field=name,
            count=found.count,
            share=found.count / stored if stored else 0.0,
            types=sorted(found.types, key=lambda kind: -found.types[kind]),
            low=_shown(found.low),
            high=_shown(found.high),
        )
        for name, found in merged.items()
    ]


def _shown(limit: float | str | None) -> str:
    if limit is None:
        return ""
    return limit if isinstance(limit, str) else f"{limit:.15g}"


def dataset_of_run(run: Run, kind: Kind = Kind.ITEMS) -> Dataset | None:
    """Return the dataset of a run's job, None before its first row."""
    return dataset_of_job(run.job, kind)


def dataset_of_job(job: Job, kind: Kind = Kind.ITEMS) -> Dataset | None:
    """Return the dataset of a job, None before its first row."""
    return Dataset.objects.filter(
        project_id=job.project_id, kind=kind, origin=Origin.JOB, origin_id=job.pk
    ).first()


def replays(dataset: Dataset) -> QuerySet[Run]:
    """Return the runs on kept pages, for a subquery.

    Their items are no news of any site: they are seen with their run only.
    """
    job = dataset.origin_id if dataset.origin == Origin.JOB else None
    return Run.objects.filter(job=job, replay_of__isnull=False)


def previous_run(dataset: Dataset, run_number: int) -> int | None:
    """Return the last earlier run of a dataset that has data, None if there is none.

    Of a replay it is the run whose pages it has read.
    """
    recorded = Run.objects.filter(pk=run_number).values_list("replay_of", flat=True).first()
    if recorded is not None:
        return recorded
    return (
        DatasetRun.objects.filter(
            dataset=dataset, run_number__lt=run_number, run_number__gt=0, deleted_at=None
        )
        .filter(stored__gt=0)
        .exclude(run_number__in=replays(dataset))
        .order_by("-run_number")
        .values_list("run_number", flat=True)
        .first()
    )
