"""Retention: days, runs and bytes; pinned runs stay; what nothing names is swept."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from apps.access.models import AuditRecord
from apps.access.states import Role
from apps.datasets.engine.item_types import ItemQuery
from apps.datasets.errors import RunIsActive, RunIsPinned
from apps.datasets.models import DataFile, Dataset, DatasetRun, StoredFile
from apps.datasets.queries.items import open_reader, run_accounting
from apps.datasets.services import compaction, retention, settling
from apps.datasets.services.changes import delete_run_data, pin_run
from apps.datasets.services.files import store_chunk
from apps.datasets.services.ingestion import store_items
from apps.jobs.models import Run
from apps.jobs.services.deletion import delete_job, purge_jobs
from apps.projects.models import Project
from apps.projects.services.deletion import delete_project, purge_projects
from tests.access.factories import Api, enter, make_user
from tests.datasets.factories import NOW, make_batch, make_chunks, make_items, store
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


@pytest.mark.slow("2 s")
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


@pytest.mark.parametrize(
    ("of_project", "own", "deleted"),
    [
        ({"keep_runs": 1}, {}, 2),
        ({"keep_days": 1}, {}, 2),
        ({"keep_bytes": 1}, {}, 3),
        # The dataset's own limit wins, also if it is larger.
        ({"keep_runs": 1}, {"keep_runs": 2}, 1),
        ({"keep_runs": 1}, {"keep_runs": 9}, 0),
        ({"keep_days": 1}, {"keep_days": 900}, 0),
        # Limits are inherited one by one.
        ({"keep_runs": 1}, {"keep_days": 900}, 2),
    ],
)
def test_a_dataset_inherits_the_limits_that_it_has_not(
    of_project: dict[str, int], own: dict[str, int], deleted: int, objects: Path
) -> None:
    runs = ended_runs(3)
    DatasetRun.objects.exclude(run_number=runs[-1].pk).update(last_at=NOW - timedelta(days=3))
    Project.objects.update(**of_project)
    Dataset.objects.update(**own)
    retention._last.clear()
    assert retention.step(now=LATER) is bool(deleted)
    assert len(left(Dataset.objects.get())) == 3 - deleted
    gone = DatasetRun.objects.exclude(deleted_at=None)
    assert [row.deleted_items for row in gone] == [10] * deleted
    assert AuditRecord.objects.filter(action="datasets.delete_runs").count() == bool(deleted)


@pytest.mark.slow("2 s")
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


def make_old(objects: Path, at: Any) -> None:
    for path in objects.glob("**/*.*"):
        os.utime(path, (at.timestamp(), at.timestamp()))


def tables() -> list[tuple[str, ...]]:
    catalog = compaction.tables()._catalog()
    return [table for space in catalog.list_namespaces() for table in catalog.list_tables(space)]


@pytest.mark.covers("DS.3")
@pytest.mark.parametrize(("limit", "kept"), [({"keep_days": 30}, 2), ({"keep_bytes": 1}, 1)])
def test_a_producer_without_runs_loses_whole_days(limit: Any, kept: int, objects: Path) -> None:
    project = make_job().project
    for days in (40, 5, 0):
        batch = make_batch(
            1,
            make_items(3),
            producer=f"biz:{project.pk}/news",
            once=f"{days}",
            at=NOW - timedelta(days=days),
        )
        assert store_items(messages=[batch], now=NOW) == []
    compact_all(LATER)
    dataset = Dataset.objects.get()
    Dataset.objects.update(**limit)
    dataset.refresh_from_db()
    assert retention.apply(dataset=dataset, now=LATER) == 3 - kept
    assert retention.apply(dataset=dataset, now=LATER) == 0
    with open_reader(dataset) as reader:
        assert len(reader.page(ItemQuery(limit=100)).items) == 3 * kept
    dataset.refresh_from_db()
    row = DatasetRun.objects.get()
    assert (dataset.items, row.deleted_items, row.deleted_at) == (3 * kept, 9 - 3 * kept, None)
    assert dataset.bytes == row.bytes == sum(DataFile.objects.values_list("bytes", flat=True))
    record = AuditRecord.objects.get(action="datasets.delete_days")
    assert record.after is not None
    assert record.after["items"] == 9 - 3 * kept
    assert len(list(objects.glob("**/table/data/**/*.parquet"))) == kept
    found = compaction.tables()._existing(dataset.project_id, dataset.pk)
    assert found is not None
    assert found.scan().to_arrow().num_rows == 3 * kept


def test_what_a_person_deletes_goes_with_its_files_and_what_comes_later(objects: Path) -> None:
    first, second = ended_runs(2)
    Run.objects.update(state="exited", ended_at=NOW)
    for chunk in make_chunks(first, "page.pdf", b"x" * 100):
        assert store_chunk(chunk=chunk, now=NOW) == ""
    dataset = Dataset.objects.get()
    row = DatasetRun.objects.get(run_number=first.pk)
    ann = make_user(roles={first.job.project: Role.EDITOR})
    pin_run(run=row, actor=ann, pinned=True)
    with pytest.raises(RunIsPinned):
        delete_run_data(run=row, actor=ann)
    pin_run(run=row, actor=ann, pinned=False)
    Run.objects.filter(pk=first.pk).update(state="running", ended_at=None)
    with pytest.raises(RunIsActive):
        delete_run_data(run=row, actor=ann)
    Run.objects.filter(pk=first.pk).update(state="exited", ended_at=NOW)
    for _ in range(2):
        delete_run_data(run=row, actor=ann)
    retention._last.clear()
    assert retention.step(now=LATER)
    assert left(dataset) == [second.pk]
    assert not StoredFile.objects.exists()
    assert not list(objects.glob("**/files/**/0"))
    store(first, make_items(5, 100), first=100)
    assert retention.apply(dataset=dataset, now=LATER) == 1
    assert left(dataset) == [second.pk]
    assert run_accounting(first.pk).deleted == 15
    record = AuditRecord.objects.get(action="datasets.delete_run")
    assert (record.actor, record.before) == (ann, {"run": first.pk, "items": 10})


@pytest.mark.slow("2 s")
def test_editors_delete_a_run_s_data_by_rest_and_on_its_page() -> None:
    run = make_run(state="exited")
    store(run, make_items(2))
    dataset = Dataset.objects.get()
    address = f"datasets/{dataset.pk}/runs/{run.pk}/data"
    button = f"/runs/{run.pk}/data/delete"
    operator = make_user(roles={run.job.project: Role.OPERATOR}, is_staff=True)
    assert Api(operator).delete(address).status_code == 403
    assert enter(operator).post(button).status_code == 403
    assert enter(operator).post(f"/runs/{run.pk}/data/pin").status_code == 302
    editor = make_user(roles={run.job.project: Role.EDITOR}, is_staff=True)
    refused = Api(editor).delete(address)
    assert (refused.status_code, refused.json()["code"]) == (409, "run_pinned")
    page = enter(editor)
    assert "Unpin it first" in page.post(button, follow=True).content.decode()
    page.post(f"/runs/{run.pk}/data/unpin")
    assert button in page.get(f"/runs/{run.pk}/data").content.decode()
    assert page.get(button).status_code == 405
    assert "within a minute" in page.post(button, follow=True).content.decode()
    assert Api(editor).delete(address).status_code == 204
    assert DatasetRun.objects.get().deleted_at is not None
    assert Api(editor).delete(f"datasets/{dataset.pk}/runs/0/data").status_code == 404


def test_files_of_a_run_without_items_are_subject_to_retention(objects: Path) -> None:
    run = make_run(state="exited", ended_at=NOW - timedelta(minutes=10), started_at=NOW)
    for chunk in make_chunks(run, "page.pdf", b"x" * 100):
        assert store_chunk(chunk=chunk, now=NOW) == ""
    assert settling.step(now=NOW)
    dataset = Dataset.objects.get()
    Dataset.objects.update(keep_bytes=99)
    dataset.refresh_from_db()
    assert retention.apply(dataset=dataset, now=LATER) == 1
    assert not list(objects.glob("**/files/**/0"))


@pytest.mark.slow("1 s")
@pytest.mark.parametrize("what", ["job", "project"])
def test_data_of_a_purged_job_or_project_goes_with_its_table(
    what: str, objects: Path, settings: Any
) -> None:
    (run,) = ended_runs(1)
    Run.objects.update(state="exited", ended_at=NOW)
    job, project = run.job, run.job.project
    store(make_run(), make_items(2))
    (kept,) = Dataset.objects.exclude(project=project)
    compact_all(LATER)
    assert len(tables()) == 2
    if what == "job":
        delete_job(job=job, actor=None, now=NOW)
    else:
        delete_project(project=project, actor=None, now=NOW)
    assert retention.delete_without_job(now=LATER) == 0
    assert Dataset.objects.count() == 2
    purged = NOW + timedelta(days=settings.DELETED_DAYS + 1)
    assert purge_jobs(now=purged) == 1
    if what == "project":
        assert purge_projects(now=purged) == 1
        assert not Project.all_objects.filter(pk=project.pk).exists()
    assert retention.delete_without_job(now=purged) == (what == "job")
    assert Dataset.objects.get() == kept
    record = AuditRecord.objects.get(action="datasets.delete")
    assert record.before is not None
    assert record.before["items"] == 10
    make_old(objects, NOW)
    retention.sweep(now=purged)
    assert tables() == [(f"p{kept.project_id}", f"d{kept.pk}")]
    assert [path.name for path in (objects / "datasets").iterdir()] == [f"p{kept.project_id}"]
    with open_reader(kept) as reader:
        assert len(reader.page(ItemQuery()).items) == 2


def test_metadata_of_expired_snapshots_is_swept(
    objects: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apps.datasets.engine.tables.FEWEST_SNAPSHOTS", 2)
    run = make_run()
    for number in range(5):
        store(run, make_items(1, number), first=number + 1)
        compact_all(LATER + timedelta(minutes=number))
    dataset = Dataset.objects.get()
    place = {"project_id": dataset.project_id, "dataset_id": dataset.pk}
    after = NOW + timedelta(days=3)
    assert compaction.tables().expire(**place, now=after) == 3
    metadata = objects.glob("**/table/metadata/*")
    before = {path.name for path in metadata}
    make_old(objects, NOW)
    swept = retention.sweep(now=after)
    left_over = {path.name for path in objects.glob("**/table/metadata/*")}
    assert swept >= 3
    assert left_over == compaction.tables().metadata_files(**place) < before
    assert retention.sweep(now=after) == 0
    found = compaction.tables()._existing(dataset.project_id, dataset.pk)
    assert found is not None
    assert found.scan().to_arrow().num_rows == 5


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
