"""Deletes data that is past its retention, and objects that belong to nothing.

The table first, then the manifest, then the objects: after a crash the work is repeated, and what
no row names any more is swept.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q, QuerySet, Sum

from apps.access.services import record
from apps.datasets.engine import keys
from apps.datasets.models import Compaction, DataFile, Dataset, DatasetRun, StoredFile
from apps.datasets.services.compaction import recover, tables
from apps.datasets.services.leases import HeldDataset, hold
from apps.datasets.states import Kind
from apps.runtime.services.objects import shared_objects
from yardkit import failpoints

logger = logging.getLogger(__name__)

# Interval of looking for data past its retention, and for orphaned objects.
LOOK: Final = timedelta(minutes=10)
SWEEP: Final = timedelta(hours=1)
# A younger object may belong to a transaction that has not ended.
ORPHAN_AGE: Final = timedelta(hours=1)
_OWNER: Final = "retention"
_last: dict[str, datetime] = {}


def step(*, now: datetime) -> bool:
    """Apply retention and sweep when it is time; return whether anything was deleted."""
    deleted = False
    if _is_due("retention", LOOK, now):
        deleted = sum(apply(dataset=dataset, now=now) for dataset in _limited()) > 0
    if _is_due("sweep", SWEEP, now):
        deleted = bool(sweep(now=now)) or deleted
    return deleted


def _is_due(name: str, interval: timedelta, now: datetime) -> bool:
    last = _last.get(name)
    if last is not None and now < last + interval:
        return False
    _last[name] = now
    return True


def _limited() -> QuerySet[Dataset]:
    if settings.DATA_DAYS:
        return Dataset.objects.all()
    unlimited = Q(keep_days=None, keep_runs=None, keep_bytes=None, kind=Kind.ITEMS)
    return Dataset.objects.exclude(unlimited)


def apply(*, dataset: Dataset, now: datetime) -> int:
    """Delete the runs of a dataset that are past its retention; return their number."""
    runs = list(expired_runs(dataset, now))
    if not runs:
        return 0
    with hold(dataset.pk, now) as held:
        if held is None:
            # It is being compacted; the next look finds the same runs.
            return 0
        # One that is left open would put its inputs back.
        recover(held.dataset)
        delete_runs(held=held, runs=runs, now=now)
    return len(runs)


def expired_runs(dataset: Dataset, now: datetime) -> Iterator[DatasetRun]:
    """Yield the runs that days, number or size do not allow any more; pinned ones stay.

    Only settled runs: what goes on is not deleted. Requests and pages of a run are deleted with its
    items, or earlier by days.
    """
    if dataset.kind != Kind.ITEMS:
        yield from _expired_with_items(dataset, now)
        return
    rows = DatasetRun.objects.filter(
        dataset=dataset, run_number__gt=0, deleted_at=None, settled_at__isnull=False
    ).order_by("-run_number")
    days = dataset.keep_days or settings.DATA_DAYS
    oldest = now - timedelta(days=days) if days else None
    size = 0
    for number, row in enumerate(rows, 1):
        size += row.bytes
        is_late = oldest is not None and (row.last_at or row.settled_at or now) < oldest
        is_many = dataset.keep_runs is not None and number > dataset.keep_runs
        is_large = dataset.keep_bytes is not None and size > dataset.keep_bytes
        if (is_late or is_many or is_large) and not row.pinned:
            yield row


def _expired_with_items(dataset: Dataset, now: datetime) -> Iterator[DatasetRun]:
    """Yield the runs of requests or pages whose items are deleted, or that are too old."""
    of_items = Dataset.objects.of_items().filter(
        project=dataset.project_id, origin=dataset.origin, origin_id=dataset.origin_id
    )
    items = {row.run_number: row for row in DatasetRun.objects.filter(dataset__in=of_items)}
    days = dataset.keep_days or settings.RUN_REQUESTS_DAYS
    oldest = now - timedelta(days=days) if days else None
    for row in DatasetRun.objects.filter(
        dataset=dataset, deleted_at=None, settled_at__isnull=False
    ).order_by("-run_number"):
        run = items.get(row.run_number)
        if run is not None and run.pinned:
            continue
        is_late = oldest is not None and (row.last_at or row.settled_at or now) < oldest
        if is_late or (run is not None and run.deleted_at is not None):
            yield row


def delete_runs(*, held: HeldDataset, runs: Sequence[DatasetRun], now: datetime) -> None:
    """Delete the items and files of some runs; what was deleted is counted and audited."""
    dataset = held.dataset
    numbers = [run.run_number for run in runs]
    tables().delete_runs(
        project_id=dataset.project_id, dataset_id=dataset.pk, runs=numbers, check=held.confirm
    )
    failpoints.hit("datasets.retention_table")
    with transaction.atomic():
        Dataset.objects.select_for_update().get(pk=dataset.pk)
        files = DataFile.objects.filter(dataset=dataset, run_number__in=numbers)
        sums = files.aggregate(items=Sum("items"), bytes=Sum("bytes"), raw=Sum("raw_bytes"))
        stored = StoredFile.objects.filter(dataset=dataset, run_number__in=numbers)
        paths = list(files.values_list("path", flat=True))
        paths += [f"{file.path}/{part}" for file in stored for part in range(file.parts)]
        files.delete()
        stored.delete()
        Dataset.objects.filter(pk=dataset.pk).update(
            items=F("items") - (sums["items"] or 0),
            bytes=F("bytes") - (sums["bytes"] or 0),
            raw_bytes=F("raw_bytes") - (sums["raw"] or 0),
        )
        DatasetRun.objects.filter(pk__in=[run.pk for run in runs]).update(
            deleted_at=now, deleted_items=F("stored")
        )
        record(
            actor=None,
            action="datasets.delete_runs",
            obj=dataset,
            actor_label=_OWNER,
            after={"items": sums["items"] or 0, "runs": ", ".join(map(str, numbers[:100]))},
        )
    failpoints.hit("datasets.retention_manifest")
    shared_objects().delete(paths)
    logger.info("dataset %d: deleted %d runs", dataset.pk, len(numbers))


def sweep(*, now: datetime) -> int:
    """Delete objects that no row names: of crashes, and of deleted datasets; return how many."""
    orphans = [
        info.key
        for info in shared_objects().list("datasets/")
        if info.modified_at < now - ORPHAN_AGE and not _is_metadata(info.key)
    ]
    datasets = {
        keys.folder(project, pk) for project, pk in Dataset.objects.values_list("project_id", "pk")
    }
    known: set[str] = set()
    for begin in range(0, len(orphans), 500):
        part = orphans[begin : begin + 500]
        known.update(DataFile.objects.filter(path__in=part).values_list("path", flat=True))
    for inputs in Compaction.objects.values_list("inputs", flat=True):
        known.update(path for _number, path in inputs)
    open_runs = {
        keys.table_file(
            row.dataset.project_id, row.dataset_id, row.run_number, row.pk, 0
        ).rpartition("-")[0]
        for row in Compaction.objects.select_related("dataset")
    }
    files = set(StoredFile.objects.values_list("path", flat=True))
    doomed = {
        key
        for key in orphans
        if key not in known
        and key.rpartition("-")[0] not in open_runs
        and key.rpartition("/")[0] not in files
    }
    doomed |= {
        info.key
        for info in shared_objects().list("datasets/")
        if "/".join(info.key.split("/")[:3]) + "/" not in datasets
        and info.modified_at < now - ORPHAN_AGE
    }
    shared_objects().delete(doomed)
    if doomed:
        logger.info("swept %d objects that belong to nothing", len(doomed))
    return len(doomed)


def _is_metadata(key: str) -> bool:
    # Of the Iceberg table; pyiceberg deletes what is old.
    return "/table/metadata/" in key
