"""Moves segments into the Iceberg table, and merges its small files.

    row with a number -> files that carry it -> commit of the table that carries it
    -> one transaction: the manifest's rows are exchanged -> later: the replaced objects go

After a crash an open row is looked up in the table: committed, the exchange is completed; not
committed, its files are deleted and the work begins again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Final
from urllib.parse import quote, urlencode

import msgspec
from django.conf import settings
from django.db import connection, transaction
from django.db.models import Count, Exists, F, Max, Min, OuterRef, Q, Sum

from apps.datasets.engine import keys
from apps.datasets.engine.merging import TARGET_BYTES, Input, Output, merge
from apps.datasets.engine.tables import KEEP_SNAPSHOTS, Batches, Tables
from apps.datasets.engine.tiers import Extent, to_merge
from apps.datasets.models import Compaction, DataFile, Dataset
from apps.datasets.services import settling, trials
from apps.datasets.services.leases import ENDING, HeldDataset, hold
from apps.datasets.states import CompactionState, Level
from apps.jobs.models import Run
from apps.jobs.states import FINAL
from apps.runtime.errors import DATABASE_ERRORS, LeaseLost
from apps.runtime.queries import database_now
from apps.runtime.services.objects import shared_objects
from yardkit import failpoints
from yardkit.items.columns import Columns
from yardkit.objects import ObjectStoreUnavailable

logger = logging.getLogger(__name__)

# Segments of a run that goes on are moved at the first of these limits.
SEGMENT_BYTES: Final = 96 * 1024 * 1024
SEGMENTS: Final = 200
SEGMENT_AGE: Final = timedelta(minutes=10)
# Of a producer without runs.
SEGMENT_AGE_WITHOUT_RUN: Final = timedelta(minutes=1)
# The last items of an ended run are on their way for so long.
AFTER_END: Final = timedelta(seconds=2)
# Smaller files are merged, see engine/tiers.py.
SMALL_BYTES: Final = TARGET_BYTES // 2
# A dataset whose files cannot be merged, such as a damaged one, must not keep others from it.
PARKED: Final = timedelta(minutes=10)
# Readers that have read the manifest before an exchange still open the old files, exports for long.
READERS: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class _Work:
    """Files of one run to be replaced: its segments, or these files of the table of one day."""

    dataset_id: int
    run_number: int
    day: date | None = None
    files: tuple[int, ...] = ()


def step(*, now: datetime) -> bool:
    """Do one piece of work; return whether there was any.

    Raises ``ObjectStoreUnavailable`` and ``DatabaseError``.
    """
    if _clean(now):
        return True
    for work in [*_open_work(), *_segments_due(now), *_merges_due()]:
        if _leased(work, now):
            return True
    return settling.step(now=now) or trials.step(now=now)


def tables() -> Tables:
    """Return the catalog of this installation."""
    return _tables(catalog_database(), settings.OBJECTS_URL, settings.ICEBERG_CATALOG_URL)


@lru_cache(maxsize=4)
def _tables(database: str, _objects: str, catalog: str) -> Tables:
    return Tables(shared_objects(), database, catalog)


def catalog_database() -> str:
    """Return SQLAlchemy's URL of Django's database."""
    known = connection.settings_dict
    name = str(known["NAME"])
    if connection.vendor == "sqlite":
        return f"sqlite:///{name}?timeout=20"
    options = {
        key: value
        for key, value in known["OPTIONS"].items()
        if isinstance(value, str | int) and not isinstance(value, bool)
    }
    user, password = quote(known["USER"], safe=""), quote(known["PASSWORD"], safe="")
    place = f"{user}:{password}@" if user else ""
    host = known["HOST"]
    if host.startswith("/"):
        options["host"], host = host, ""
    port = f":{known['PORT']}" if known["PORT"] else ""
    query = f"?{urlencode(options)}" if options else ""
    return f"postgresql+psycopg://{place}{host}{port}/{quote(name, safe='')}{query}"


# --- what is due ------------------------------------------------------------------------------


def _open_work() -> list[_Work]:
    rows = Compaction.objects.filter(state=CompactionState.STARTED).order_by("id")[:20]
    return [_Work(row.dataset_id, row.run_number) for row in rows]


def _segments_due(now: datetime) -> list[_Work]:
    groups = list(
        DataFile.objects.filter(level=Level.SEGMENT)
        .values("dataset_id", "run_number")
        .annotate(
            files=Count("id"), size=Sum("bytes"), oldest=Min("created_at"), newest=Max("created_at")
        )
        .order_by("oldest")[:1000]
    )
    ended = _ended(group["run_number"] for group in groups)
    due = []
    for group in groups:
        run = group["run_number"]
        age = SEGMENT_AGE if run else SEGMENT_AGE_WITHOUT_RUN
        if (
            group["size"] >= SEGMENT_BYTES
            or group["files"] >= SEGMENTS
            or group["oldest"] <= now - age
            or (run in ended and group["newest"] <= now - AFTER_END)
        ):
            due.append(_Work(group["dataset_id"], run))
    return due


def _merges_due() -> list[_Work]:
    """Return the small files of the table that are to be merged, by run and day."""
    fields = ("dataset_id", "run_number", "day")
    table = DataFile.objects.filter(level=Level.TABLE)
    small = (
        table.filter(bytes__lt=SMALL_BYTES)
        .values_list(*fields)
        .annotate(files=Count("id"))
        .filter(files__gte=2)
        .order_by("-files")[:200]
    )
    groups: dict[tuple[int, int, date | None], list[Extent]] = {row[:3]: [] for row in small}
    if not groups:
        return []
    datasets, runs, days = (set(values) for values in zip(*groups, strict=True))
    rows = table.filter(dataset__in=datasets, run_number__in=runs, day__in=days)
    for row in rows.values_list(*fields, "id", "bytes", "first_batch", "last_batch"):
        if row[:3] in groups:
            groups[row[:3]].append(Extent(*row[3:]))
    ended = _ended(runs)
    due = []
    for (dataset, run, day), files in groups.items():
        found = to_merge(files, small_bytes=SMALL_BYTES, ended=run in ended)
        if found:
            due.append(_Work(dataset, run, day, tuple(file.number for file in found)))
    return due


def _ended(runs: Iterable[int]) -> set[int]:
    return set(Run.objects.filter(pk__in=set(runs), state__in=FINAL).values_list("pk", flat=True))


# --- one compaction ---------------------------------------------------------------------------


def _leased(work: _Work, now: datetime) -> bool:
    """Do this work under the dataset's lease; return False if another process has it."""
    with hold(work.dataset_id, now) as held:
        if held is None:
            return False
        try:
            if not recover(held.dataset):
                _compact(held, work, now)
        except (ObjectStoreUnavailable, *DATABASE_ERRORS):
            raise
        except LeaseLost as error:
            logger.warning("a compaction is given up: %s", error.detail)
        except Exception:
            if ENDING.is_set():
                # The next process completes it at once.
                logger.warning("the process ends within a compaction: dataset=%d", work.dataset_id)
                return True
            held.until = now + PARKED
            logger.exception("dataset %d is not compacted for a while", work.dataset_id)
    return True


def recover(dataset: Dataset) -> bool:
    """Complete or undo what a crash has left open; return whether there was any.

    The caller holds the dataset.
    """
    rows = list(
        Compaction.objects.filter(dataset=dataset, state=CompactionState.STARTED).order_by("id")
    )
    for row in rows:
        if not _is_committed(dataset, row):
            tables().fence(project_id=dataset.project_id, dataset_id=dataset.pk, compaction=row.pk)
        # Looked up again: it may have been committed just before the fence.
        number = row.pk
        if _is_committed(dataset, row):
            _exchange(dataset, row)
            logger.info("compaction %d of dataset %d is completed", number, dataset.pk)
        else:
            _undo(dataset, row)
            logger.info("compaction %d of dataset %d is undone", number, dataset.pk)
    return bool(rows)


def _is_committed(dataset: Dataset, row: Compaction) -> bool:
    return tables().is_committed(
        project_id=dataset.project_id, dataset_id=dataset.pk, compaction=row.pk
    )


def _undo(dataset: Dataset, row: Compaction) -> None:
    place = keys.table(dataset.project_id, dataset.pk)
    prefix = f"{place}/data/run-{row.run_number}/"
    written = [
        info.key
        for info in shared_objects().list(prefix)
        if info.key.startswith(f"{prefix}c{row.pk}-")
    ]
    shared_objects().delete(written)
    row.delete()


def _compact(held: HeldDataset, work: _Work, now: datetime) -> None:
    dataset = held.dataset
    inputs = DataFile.objects.filter(dataset=dataset, run_number=work.run_number)
    if work.files:
        inputs = inputs.filter(pk__in=work.files, level=Level.TABLE)
    else:
        inputs = inputs.filter(level=Level.SEGMENT)
    files = list(inputs.order_by("first_batch", "id"))
    # Another process has done it meanwhile.
    if len(files) < max(1, len(work.files)):
        return
    row = Compaction.objects.create(
        dataset=dataset,
        run_number=work.run_number,
        inputs=[[file.pk, file.path] for file in files],
        is_merge=bool(work.files),
        started_at=now,
    )
    failpoints.hit("datasets.compaction_started")
    outputs = _merged(held, row, files)
    row.outputs = msgspec.to_builtins(outputs)
    if not Compaction.objects.filter(pk=row.pk).update(outputs=row.outputs):
        raise LeaseLost(f"another process has undone compaction {row.pk}")
    failpoints.hit("datasets.compaction_written")
    tables().commit(
        project_id=dataset.project_id,
        dataset_id=dataset.pk,
        location=keys.table(dataset.project_id, dataset.pk),
        columns=list(_columns(dataset)),
        files=[output.key for output in outputs],
        compaction=row.pk,
        replaces=_replaced(work, files),
        check=held.confirm,
    )
    failpoints.hit("datasets.compaction_committed")
    _exchange(dataset, row)
    logger.info(
        "dataset %d: %d files of run %d are %d in the table",
        dataset.pk,
        len(files),
        work.run_number,
        len(outputs),
    )


def _replaced(work: _Work, files: Sequence[DataFile]) -> Batches | None:
    if work.day is None:
        return None
    last = max(file.last_batch for file in files)
    return Batches(work.run_number, work.day, files[0].first_batch, last)


def _columns(dataset: Dataset) -> Columns:
    # Read again: a writer may have added columns since.
    dataset.refresh_from_db(fields=["columns"])
    return Columns(dataset.columns)


def _merged(held: HeldDataset, row: Compaction, files: Sequence[DataFile]) -> list[Output]:
    dataset = held.dataset

    def key_of(number: int) -> str:
        return keys.table_file(dataset.project_id, dataset.pk, row.run_number, row.pk, number)

    inputs = [
        Input(file.path, file.first_batch if file.level == Level.SEGMENT else None)
        for file in files
    ]
    columns = list(_columns(dataset))
    return merge(shared_objects(), inputs, columns, key_of, check=held.check)


def _exchange(dataset: Dataset, row: Compaction) -> None:
    """Exchange the rows of the manifest, once."""
    outputs = msgspec.convert(row.outputs, list[Output])
    ids = [number for number, _path in row.inputs]
    with transaction.atomic():
        Dataset.objects.select_for_update().get(pk=dataset.pk)
        changed = Compaction.objects.filter(pk=row.pk, state=CompactionState.STARTED).update(
            state=CompactionState.DONE, ended_at=database_now()
        )
        if not changed:
            return
        old = DataFile.objects.filter(pk__in=ids).aggregate(size=Sum("bytes"), files=Count("id"))
        DataFile.objects.filter(pk__in=ids).delete()
        if old["files"] == len(ids):
            DataFile.objects.bulk_create(_file(dataset, row, output) for output in outputs)
            grown = sum(output.bytes for output in outputs) - (old["size"] or 0)
            Dataset.objects.filter(pk=dataset.pk).update(bytes=F("bytes") + grown)
            dataset.runs.filter(run_number=row.run_number).update(bytes=F("bytes") + grown)
        failpoints.hit("datasets.compaction_exchanged")


def _file(dataset: Dataset, row: Compaction, output: Output) -> DataFile:
    return DataFile(
        dataset=dataset,
        run_number=row.run_number,
        level=Level.TABLE,
        path=output.key,
        items=output.items,
        bytes=output.bytes,
        raw_bytes=output.raw_bytes,
        first_batch=output.first_batch,
        last_batch=output.last_batch,
        day=output.day,
    )


def _clean(now: datetime) -> bool:
    """Delete the objects of replaced files that no reader can be reading any more.

    A dataset with an open compaction waits: the snapshot by which it is looked up must not expire.
    """
    open_rows = Compaction.objects.filter(
        dataset=OuterRef("dataset"), state=CompactionState.STARTED
    )
    done = Compaction.objects.filter(~Exists(open_rows), state=CompactionState.DONE)
    # Merged files of the table stay for its older snapshots.
    rows = done.filter(
        Q(is_merge=False, ended_at__lte=now - READERS)
        | Q(is_merge=True, ended_at__lte=now - KEEP_SNAPSHOTS - READERS)
    )
    for dataset_id in rows.values_list("dataset_id", flat=True).distinct()[:50]:
        with hold(dataset_id, now) as held:
            if held is None:
                continue
            dataset = held.dataset
            tables().expire(project_id=dataset.project_id, dataset_id=dataset.pk, now=now)
            for row in rows.filter(dataset=dataset).order_by("id")[:50]:
                shared_objects().delete(path for _number, path in row.inputs)
                row.delete()
            return True
    return False
