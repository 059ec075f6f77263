"""Deletes data that is past its retention, and objects that belong to nothing.

The table first, then the manifest, then the objects: after a crash the work is repeated, and what
no row names any more is swept.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, timedelta
from typing import Any, Final

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet, Sum
from django.db.models.functions import Coalesce

from apps.access.services import record
from apps.datasets.engine import keys
from apps.datasets.engine.tables import KEEP_SNAPSHOTS
from apps.datasets.models import Compaction, DataFile, Dataset, DatasetRun, StoredFile
from apps.datasets.services.compaction import recover, tables
from apps.datasets.services.kept_pages import days_of_pages, delete_pages, sweep_pages
from apps.datasets.services.leases import HeldDataset, hold
from apps.datasets.states import Kind, Level, Origin
from apps.jobs.models import Job
from apps.runtime.services.objects import shared_objects
from yardkit import failpoints
from yardkit.objects import ObjectInfo

logger = logging.getLogger(__name__)

# Interval of looking for data past its retention, and for objects that no row names, which lists
# the whole store.
LOOK: Final = timedelta(minutes=10)
SWEEP: Final = timedelta(hours=1)
# Interval of looking for runs whose data people have deleted.
DECIDED: Final = timedelta(seconds=10)
# A younger object may belong to a transaction that has not ended.
ORPHAN_AGE: Final = timedelta(hours=1)
_OWNER: Final = "retention"
_PLACE: Final = re.compile(r"datasets/p(\d+)/d(\d+)/.+")
_last: dict[str, datetime] = {}

# Project and dataset.
Place = tuple[int, int]


def step(*, now: datetime) -> bool:
    """Apply retention and sweep when it is time; return whether anything was deleted."""
    datasets: QuerySet[Dataset] = Dataset.objects.none()
    if _is_due("decided", DECIDED, now):
        datasets = Dataset.objects.filter(pk__in=_decided().values("dataset"))
    if _is_due("retention", LOOK, now):
        datasets |= _limited()
        delete_without_job(now=now)
    found = datasets.select_related("project")
    deleted = sum(apply(dataset=dataset, now=now) for dataset in found) > 0
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
    limits = ("keep_days", "keep_runs", "keep_bytes")
    names = [*limits, *(f"project__{name}" for name in limits)]
    return Dataset.objects.exclude(**dict.fromkeys(names), kind=Kind.ITEMS)


def _decided() -> QuerySet[DatasetRun]:
    """Runs that are deleted and still have data: by a person, or it came afterwards."""
    of_run = {"dataset": OuterRef("dataset"), "run_number": OuterRef("run_number")}
    return DatasetRun.objects.filter(deleted_at__isnull=False).filter(
        Exists(DataFile.objects.filter(**of_run)) | Exists(StoredFile.objects.filter(**of_run))
    )


def apply(*, dataset: Dataset, now: datetime) -> int:
    """Delete the data of a dataset that is past its retention, or that a person has deleted.

    Return the number of runs, and of days of a producer without runs.
    """
    runs = [*_decided().filter(dataset=dataset), *expired_runs(dataset, now)]
    days = expired_days(dataset, now)
    if not runs and not days:
        return 0
    with hold(dataset.pk, now) as held:
        if held is None:
            # It is being compacted; the next look finds the same data.
            return 0
        # One that is left open would put its inputs back.
        recover(held.dataset)
        if runs:
            delete_runs(held=held, runs=runs, now=now)
        if days:
            delete_days(held=held, days=days)
    return len(runs) + len(days)


def _oldest(dataset: Dataset, now: datetime) -> datetime | None:
    days = dataset.limit("keep_days") or settings.DATA_DAYS
    return now - timedelta(days=days) if days else None


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
    files = dict(
        StoredFile.objects.filter(dataset=dataset)
        .order_by()
        .values_list("run_number")
        .annotate(size=Sum("size"))
    )
    oldest = _oldest(dataset, now)
    most_runs, most_bytes = dataset.limit("keep_runs"), dataset.limit("keep_bytes")
    size = 0
    for number, row in enumerate(rows, 1):
        size += row.bytes + files.get(row.run_number, 0)
        is_late = oldest is not None and (row.last_at or row.settled_at or now) < oldest
        is_many = most_runs is not None and number > most_runs
        is_large = most_bytes is not None and size > most_bytes
        if (is_late or is_many or is_large) and not row.pinned:
            yield row


def _expired_with_items(dataset: Dataset, now: datetime) -> Iterator[DatasetRun]:
    """Yield the runs of requests or pages whose items are deleted, or that are too old."""
    of_items = Dataset.objects.of_items().filter(
        project=dataset.project_id, origin=dataset.origin, origin_id=dataset.origin_id
    )
    items = {row.run_number: row for row in DatasetRun.objects.filter(dataset__in=of_items)}
    days = dataset.keep_days or settings.RUN_REQUESTS_DAYS
    if dataset.kind == Kind.PAGES:
        days = days_of_pages(dataset)
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


def expired_days(dataset: Dataset, now: datetime) -> list[date]:
    """Return the days that a producer without runs may not keep any more; the newest stays."""
    if dataset.origin == Origin.JOB:
        return []
    # Segments are moved into the table within minutes.
    files = DataFile.objects.filter(dataset=dataset, run_number=0, level=Level.TABLE)
    rows = files.order_by("-day").values_list("day").annotate(size=Sum("bytes"))
    oldest, most_bytes = _oldest(dataset, now), dataset.limit("keep_bytes")
    total, found = 0, []
    for place, (day, size) in enumerate(rows):
        total += size
        is_late = oldest is not None and day < oldest.date()
        is_large = place > 0 and most_bytes is not None and total > most_bytes
        if is_late or is_large:
            found.append(day)
    return found


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
        stored = StoredFile.objects.filter(dataset=dataset, run_number__in=numbers)
        paths = [f"{file.path}/{part}" for file in stored for part in range(file.parts)]
        stored.delete()
        sums = _forget(dataset, Q(run_number__in=numbers), paths)
        DatasetRun.objects.filter(pk__in=[run.pk for run in runs]).update(
            deleted_at=Coalesce(F("deleted_at"), now), deleted_items=F("stored"), bytes=0
        )
        _audit(dataset, "datasets.delete_runs", sums, runs=numbers)
    failpoints.hit("datasets.retention_manifest")
    shared_objects().delete(paths)
    if dataset.kind == Kind.PAGES:
        for number in numbers:
            delete_pages(project_id=dataset.project_id, run_number=number)
    logger.info("dataset %d: deleted %d runs", dataset.pk, len(numbers))


def delete_days(*, held: HeldDataset, days: Sequence[date]) -> None:
    """Delete the items of some days of a producer without runs, like ``delete_runs``."""
    dataset = held.dataset
    tables().delete_runs(
        project_id=dataset.project_id,
        dataset_id=dataset.pk,
        runs=[0],
        days=days,
        check=held.confirm,
    )
    failpoints.hit("datasets.retention_table")
    paths: list[str] = []
    with transaction.atomic():
        Dataset.objects.select_for_update().get(pk=dataset.pk)
        sums = _forget(dataset, Q(run_number=0, level=Level.TABLE, day__in=days), paths)
        DatasetRun.objects.filter(dataset=dataset, run_number=0).update(
            deleted_items=F("deleted_items") + sums["items"], bytes=F("bytes") - sums["bytes"]
        )
        _audit(dataset, "datasets.delete_days", sums, days=[day.isoformat() for day in days])
    failpoints.hit("datasets.retention_manifest")
    shared_objects().delete(paths)
    logger.info("dataset %d: deleted %d days", dataset.pk, len(days))


def _forget(dataset: Dataset, chosen: Q, paths: list[str]) -> dict[str, int]:
    """Delete rows of the manifest, add their paths, and return the sums that are gone."""
    files = DataFile.objects.filter(chosen, dataset=dataset)
    names = ("items", "bytes", "raw_bytes")
    found = files.aggregate(**{f"all_{name}": Sum(name) for name in names})
    sums: dict[str, int] = {name: found[f"all_{name}"] or 0 for name in names}
    paths += files.values_list("path", flat=True)
    files.delete()
    Dataset.objects.filter(pk=dataset.pk).update(
        **{name: F(name) - value for name, value in sums.items()}
    )
    return sums


def _audit(dataset: Dataset, action: str, sums: dict[str, int], **what: Sequence[Any]) -> None:
    ((name, values),) = what.items()
    record(
        actor=None,
        action=action,
        obj=dataset,
        actor_label=_OWNER,
        after={"items": sums["items"], name: ", ".join(map(str, values[:100]))},
    )


def delete_without_job(*, now: datetime) -> int:
    """Delete the datasets of purged jobs; return how many. Their objects are left to ``sweep``."""
    jobs = Job.all_objects.filter(pk=OuterRef("origin_id"))
    count = 0
    for pk in list(
        Dataset.objects.filter(~Exists(jobs), origin=Origin.JOB).values_list("pk", flat=True)
    ):
        with hold(pk, now) as held:
            if held is not None:
                # A receiver records it, as for the datasets of a purged project.
                held.dataset.delete()
                count += 1
    return count


# --- what no row names --------------------------------------------------------------------------


def sweep(*, now: datetime) -> int:
    """Delete what crashes, deleted datasets and expired snapshots have left; return how many.

    Tables of deleted datasets leave the catalog.
    """
    # Listed before the rows are read: a dataset has its row before its first object.
    found: defaultdict[Place, list[ObjectInfo]] = defaultdict(list)
    for info in shared_objects().list("datasets/"):
        if info.modified_at < now - ORPHAN_AGE and (place := _PLACE.fullmatch(info.key)):
            found[int(place[1]), int(place[2])].append(info)
    known = set(Dataset.objects.values_list("project_id", "pk"))
    projects = {project for project, _dataset in known}
    count = 0
    for (project_id, dataset_id), infos in found.items():
        if (project_id, dataset_id) in known:
            doomed = [*_orphans(infos), *_old_metadata(project_id, dataset_id, infos, now)]
        else:
            location = keys.table(project_id, dataset_id)
            tables().drop(project_id=project_id, dataset_id=dataset_id, location=location)
            if project_id not in projects:
                tables().drop_namespace(project_id=project_id)
            doomed = [info.key for info in infos]
        shared_objects().delete(doomed)
        count += len(doomed)
    count += sweep_pages(now=now)
    # Bodies on their way to runs that have ended without reading them.
    left = [
        info.key for info in shared_objects().list("bodies/") if info.modified_at < now - ORPHAN_AGE
    ]
    shared_objects().delete(left)
    count += len(left)
    if count:
        logger.info("swept %d objects that belong to nothing", count)
    return count


def _orphans(infos: Iterable[ObjectInfo]) -> list[str]:
    """Return the segments, data files and parts of files that no row names."""
    names = [info.key for info in infos if not _is_metadata(info.key)]
    known: set[str] = set()
    for begin in range(0, len(names), 500):
        part = names[begin : begin + 500]
        known.update(DataFile.objects.filter(path__in=part).values_list("path", flat=True))
        folders = {name.rpartition("/")[0] for name in part if "/files/" in name}
        known.update(StoredFile.objects.filter(path__in=folders).values_list("path", flat=True))
    left = [name for name in names if not known & {name, name.rpartition("/")[0]}]
    if not left:
        return []
    dataset_id = int(left[0].split("/")[2][1:])
    for row in Compaction.objects.filter(dataset=dataset_id).select_related("dataset"):
        known.update(path for _number, path in row.inputs)
        file = keys.table_file(row.dataset.project_id, dataset_id, row.run_number, row.pk, 0)
        known.add(file.rpartition("-")[0])
    return [name for name in left if not known & {name, name.rpartition("-")[0]}]


def _old_metadata(
    project_id: int, dataset_id: int, infos: Iterable[ObjectInfo], now: datetime
) -> list[str]:
    """Return the metadata files of the table to which no snapshot refers any more."""
    # A process that was frozen within its commit must not find its files gone.
    old = [
        info.key
        for info in infos
        if _is_metadata(info.key) and info.modified_at < now - KEEP_SNAPSHOTS
    ]
    if not old:
        return []
    with hold(dataset_id, now) as held:
        if held is None:
            return []
        referred = tables().metadata_files(project_id=project_id, dataset_id=dataset_id)
    return [name for name in old if name.rpartition("/")[2] not in referred]


def _is_metadata(key: str) -> bool:
    return "/table/metadata/" in key
