"""Settles the data of ended runs: compares it with the previous run, and evaluates the checks."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from django.db import transaction
from django.db.models import CharField, Exists, F, OuterRef, Q, Subquery, Value
from django.db.models.functions import Cast, Concat

from apps.datasets.engine.checks import (
    BadChecks,
    CheckResult,
    DuplicatesAtMost,
    RunFacts,
    evaluate,
    read_checks,
)
from apps.datasets.engine.errors import DatasetError
from apps.datasets.models import DataFile, Dataset, DatasetRun, StoredFile
from apps.datasets.queries.items import open_reader, previous_run, run_accounting
from apps.datasets.services.datasets import dataset_of_job
from apps.datasets.states import Kind, Level, Origin
from apps.jobs.models import Run
from apps.jobs.states import FINAL
from apps.queuestats.models import RunCounter
from yardkit.items.segments import FieldStatistics

logger = logging.getLogger(__name__)

# What a run has reported and has not arrived by then will not arrive any more.
PATIENCE: Final = timedelta(seconds=60)
# Runs without an item are looked for among those that ended since then.
RECENT: Final = timedelta(hours=1)
_EARLIER_RUNS: Final = 10


def step(*, now: datetime) -> bool:
    """Settle one run; return whether there was any."""
    _add_empty_runs(now)
    final = Run.objects.filter(pk=OuterRef("run_number"), state__in=FINAL)
    segments = DataFile.objects.filter(
        dataset=OuterRef("dataset"), run_number=OuterRef("run_number"), level=Level.SEGMENT
    )
    rows = (
        DatasetRun.objects.filter(settled_at=None, deleted_at=None, run_number__gt=0)
        .filter(Exists(final), ~Exists(segments))
        .annotate(ended_at=Subquery(final.values("ended_at")[:1]))
        .select_related("dataset")
        .order_by("run_number")[:20]
    )
    for row in rows:
        waited = row.ended_at is None or row.ended_at <= now - PATIENCE
        if waited or not run_accounting(row.run_number).in_flight:
            _settle(row, now)
            return True
    return False


def _add_empty_runs(now: datetime) -> None:
    """Add rows for ended runs of which nothing has arrived.

    Those that have reported items, or kept files, and those of datasets with checks to evaluate.
    """
    checked = (
        Dataset.objects.of_items().filter(origin=Origin.JOB).exclude(checks=[]).values("origin_id")
    )
    known = DatasetRun.objects.of_items().filter(run_number=OuterRef("pk"))
    stream = Concat(Value("run:"), Cast(OuterRef("pk"), CharField()))
    reported = RunCounter.objects.filter(owner=stream, items__gt=0)
    kept = StoredFile.objects.filter(run_number=OuterRef("pk"))
    runs = Run.objects.filter(~Exists(known), state__in=FINAL, ended_at__gt=now - RECENT)
    DatasetRun.objects.bulk_create(
        [
            DatasetRun(dataset=dataset_of_job(run.job), run_number=run.pk)
            for run in runs.filter(Exists(reported) | Exists(kept) | Q(job__in=checked))
            .exclude(started_at=None)
            .select_related("job")
        ],
        ignore_conflicts=True,
    )


def _settle(row: DatasetRun, now: datetime) -> None:
    dataset = row.dataset
    changes: dict[str, Any] = {"settled_at": now, "compared": _compared(row)}
    changes["checked"] = msgspec.to_builtins(_checked(row))
    failed = [result for result in changes["checked"] if not result["ok"]]
    with transaction.atomic():
        Dataset.objects.select_for_update().get(pk=dataset.pk)
        if row.settled_batch is None:
            Dataset.objects.filter(pk=dataset.pk).update(last_batch=F("last_batch") + 1)
            dataset.refresh_from_db(fields=["last_batch"])
            # Kept for good: deliveries at the end of runs take what comes later by its batches.
            changes["settled_batch"] = dataset.last_batch
        # Items that have come meanwhile have changed the count: the row is settled again later.
        same = DatasetRun.objects.filter(pk=row.pk, stored=row.stored, rejected=row.rejected)
        if same.update(**changes) and dataset.kind == Kind.ITEMS:
            Run.objects.filter(pk=row.run_number).update(failed_checks=len(failed))
    if failed:
        texts = "; ".join(f"{result['check']}: {result['text']}" for result in failed)
        logger.warning("data of run %d fails its checks: %s", row.run_number, texts)


def _compared(row: DatasetRun) -> dict[str, int]:
    """Return the comparison with the previous run; {} without a key or an earlier run."""
    dataset = row.dataset
    previous = previous_run(dataset, row.run_number) if dataset.key_fields else None
    if previous is None:
        return {}
    try:
        with open_reader(dataset, [previous, row.run_number]) as reader:
            found = reader.compare(previous, row.run_number)
    except DatasetError as error:
        logger.warning("runs %d and %d not compared: %s", previous, row.run_number, error)
        return {}
    return {"with": previous, **msgspec.to_builtins(found)}


def _checked(row: DatasetRun) -> list[CheckResult]:
    if not row.dataset.checks:
        return []
    try:
        checks = read_checks(row.dataset.checks)
    except BadChecks as error:
        return [CheckResult("checks", False, str(error))]
    fields = {name: msgspec.convert(values, FieldStatistics) for name, values in row.fields.items()}
    earlier = DatasetRun.objects.filter(
        dataset=row.dataset, run_number__lt=row.run_number, run_number__gt=0
    ).order_by("-run_number")
    facts = RunFacts(
        stored=row.stored,
        rejected=row.rejected,
        flagged=row.flagged,
        duplicates=_duplicates(row)
        if any(isinstance(check, DuplicatesAtMost) for check in checks)
        else None,
        filled={name: found.count for name, found in fields.items()},
        limits={
            name: (found.low, found.high)
            for name, found in fields.items()
            if isinstance(found.low, float) and isinstance(found.high, float)
        },
        earlier=list(earlier.values_list("stored", flat=True)[:_EARLIER_RUNS]),
    )
    return evaluate(checks, facts)


def _duplicates(row: DatasetRun) -> int | None:
    if not row.dataset.key_fields:
        return None
    with open_reader(row.dataset, [row.run_number]) as reader:
        return reader.duplicates()
