"""Retention: days, runs and bytes; pinned runs stay; what nothing names is swept."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from apps.access.models import AuditRecord
from apps.datasets.engine.item_types import ItemQuery
from apps.datasets.models import DataFile, Dataset, DatasetRun
from apps.datasets.queries.items import open_reader, run_accounting
from apps.datasets.services import retention
from apps.jobs.models import Run
from tests.datasets.factories import NOW, make_items, store
from tests.datasets.test_pipeline import compact_all
from tests.jobs.factories import make_job, make_run
from yardkit import failpoints

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.covers("DS.11")]
LATER = NOW + timedelta(minutes=30)


def ended_runs(count: int) -> list[Run]:
    """Runs of one job with ten items each, all in the table and settled."""
    job = make_job()
    runs = [make_run(job=job) for _ in range(count)]
    for number, run in enumerate(runs):
        store(run, make_items(10, start=10 * number))
    compact_all(LATER)
    DatasetRun.objects.update(settled_at=LATER)
    return runs


def left(dataset: Dataset) -> list[int]:
    return sorted(
        set(DataFile.objects.filter(dataset=dataset).values_list("run_number", flat=True))
    )


@pytest.mark.parametrize("limit", [{"keep_runs": 2}, {"keep_bytes": 1}, {"keep_days": 1}])
def test_what_is_past_its_retention_goes_but_for_pinned_runs(
    limit: dict[str, Any], objects: Path
) -> None:
    runs = ended_runs(4)
    dataset = Dataset.objects.get()
    Dataset.objects.update(**limit)
    dataset.refresh_from_db()
    DatasetRun.objects.filter(run_number=runs[0].pk).update(pinned=True)
    DatasetRun.objects.filter(run_number__in=[run.pk for run in runs[:3]]).update(
        last_at=NOW - timedelta(days=3)
    )
    deleted = retention.apply(dataset=dataset, now=LATER)
    kept = left(dataset)
    assert runs[0].pk in kept
    assert len(kept) == 4 - deleted > 0
    assert deleted == {"keep_runs": 1, "keep_bytes": 3, "keep_days": 2}[next(iter(limit))]
    with open_reader(dataset) as reader:
        assert {item.run for item in reader.page(ItemQuery(limit=100)).items} == set(kept)
    gone = DatasetRun.objects.exclude(deleted_at=None)
    assert [row.deleted_items for row in gone] == [10] * deleted
    assert run_accounting(gone[0].run_number).deleted == 10
    dataset.refresh_from_db()
    assert dataset.items == 10 * len(kept)
    assert AuditRecord.objects.get(action="datasets.delete_runs").actor is None
    assert len(list(objects.glob("**/table/data/**/*.parquet"))) == len(kept)


@pytest.mark.parametrize("point", ["datasets.retention_table", "datasets.retention_manifest"])
def test_a_deletion_that_breaks_off_is_finished_and_counted_once(point: str, objects: Path) -> None:
    ended_runs(3)
    dataset = Dataset.objects.get()
    Dataset.objects.update(keep_runs=1)
    dataset.refresh_from_db()
    failpoints.configure({"FAILPOINTS": f"{point}=raise@1"})
    try:
        with pytest.raises(failpoints.FailpointError):
            retention.apply(dataset=dataset, now=LATER)
    finally:
        failpoints.configure({})
    retention.apply(dataset=dataset, now=LATER)
    (kept,) = left(dataset)
    with open_reader(dataset) as reader:
        assert {item.run for item in reader.page(ItemQuery(limit=100)).items} == {kept}
    gone = DatasetRun.objects.exclude(deleted_at=None)
    assert [row.deleted_items for row in gone] == [10, 10]
    dataset.refresh_from_db()
    assert dataset.items == 10
    assert AuditRecord.objects.filter(action="datasets.delete_runs").count() == 1


def test_a_run_that_goes_on_stays(objects: Path) -> None:
    run = make_run()
    store(run, make_items(10))
    dataset = Dataset.objects.get()
    Dataset.objects.update(keep_runs=0)
    dataset.refresh_from_db()
    assert retention.apply(dataset=dataset, now=LATER) == 0
    assert left(dataset) == [run.pk]


def test_only_what_nothing_names_is_swept(objects: Path) -> None:
    ended_runs(2)
    dataset = Dataset.objects.get()
    folder = objects / "datasets" / f"p{dataset.project_id}" / f"d{dataset.pk}"
    orphan = folder / "segments" / "run-1" / "left.parquet"
    other = objects / "datasets" / "p999" / "d999" / "segments" / "run-1" / "x.parquet"
    young = folder / "segments" / "run-1" / "young.parquet"
    for path in (orphan, other, young):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    old = (LATER - timedelta(hours=2)).timestamp()
    for path in objects.glob("**/*.*"):
        if path != young:
            os.utime(path, (old, old))
    # The clock of the file system is the real one.
    now = LATER
    assert retention.sweep(now=now) == 2
    assert young.exists()
    assert not orphan.exists()
    assert not other.exists()
    with open_reader(dataset) as reader:
        assert len(reader.page(ItemQuery(limit=100)).items) == 20


def test_requests_go_with_the_items_of_their_run_or_after_some_days(settings: Any) -> None:
    runs = ended_runs(4)
    for run in runs:
        store(run, [{"url": "https://shop.example/"}] * 3, producer=f"requests:{run.pk}")
    compact_all(LATER)
    DatasetRun.objects.update(settled_at=LATER)
    of_items, of_requests = Dataset.objects.get(kind="items"), Dataset.objects.get(kind="requests")
    assert run_accounting(runs[0].pk).stored == 10
    assert (of_items.items, of_requests.items) == (40, 12)
    settings.RUN_REQUESTS_DAYS = 2
    DatasetRun.objects.filter(run_number=runs[3].pk).update(last_at=NOW - timedelta(days=3))
    DatasetRun.objects.filter(dataset=of_items, run_number=runs[1].pk).update(pinned=True)
    Dataset.objects.filter(pk=of_items.pk).update(keep_runs=2)
    of_items.refresh_from_db()
    assert retention.apply(dataset=of_items, now=LATER) == 1
    assert retention.apply(dataset=of_requests, now=LATER) == 2
    assert left(of_items) == [run.pk for run in runs[1:]]
    assert left(of_requests) == [run.pk for run in runs[1:3]]
    assert run_accounting(runs[0].pk).deleted == 10
