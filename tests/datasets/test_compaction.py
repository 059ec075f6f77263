"""Compactions that are overtaken, fail or meet large items."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from apps.datasets.engine.item_types import ItemQuery
from apps.datasets.engine.tables import Tables
from apps.datasets.models import Compaction, DataFile, Dataset
from apps.datasets.queries.items import open_reader
from apps.datasets.services import compaction
from apps.datasets.services.leases import ENDING, LEASE, hold
from apps.datasets.states import Level
from apps.runtime.errors import LeaseLost
from apps.runtime.services.objects import shared_objects
from tests.datasets.factories import NOW, make_items, store
from tests.jobs.factories import make_job, make_run
from yardkit.objects import ObjectStoreUnavailable

pytestmark = pytest.mark.django_db(transaction=True)

LATER = NOW + timedelta(minutes=20)


def compact_all(now: Any = LATER) -> None:
    for _ in range(30):
        if not compaction.step(now=now):
            return


def in_table(dataset: Dataset) -> list[int]:
    """Numbers of the items, as pyiceberg alone reads them."""
    table = compaction.tables()._existing(dataset.project_id, dataset.pk)
    assert table is not None
    return sorted(table.scan(selected_fields=("_seq",)).to_arrow()["_seq"].to_pylist())


def listed(dataset: Dataset) -> list[int]:
    with open_reader(dataset) as reader:
        return sorted(item.seq for item in reader.page(ItemQuery(limit=1000)).items)


@pytest.mark.covers("DS.4")
@pytest.mark.parametrize("has_table", [True, False])
def test_one_that_was_frozen_before_its_commit_commits_nothing(
    has_table: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has loaded the table and confirmed its lease; another process has finished the work."""
    run = make_run()
    if has_table:
        store(run, make_items(3), first=50)
        compact_all()
    store(run, make_items(4))
    dataset = Dataset.objects.get()
    wakes = LATER + LEASE + timedelta(minutes=1)
    confirm = compaction.HeldDataset.confirm
    frozen = []

    def freeze(held: Any) -> None:
        confirm(held)
        if not frozen:
            frozen.append(True)
            compact_all(wakes + timedelta(minutes=1))

    with monkeypatch.context() as patched:
        patched.setattr(compaction.HeldDataset, "confirm", freeze)
        with pytest.raises(ObjectStoreUnavailable):
            compaction.step(now=LATER)
    compact_all(wakes + timedelta(hours=1))
    wanted = sorted([*range(1, 5), *([50, 51, 52] if has_table else [])])
    assert in_table(dataset) == listed(dataset) == wanted
    assert sum(DataFile.objects.values_list("items", flat=True)) == len(wanted)


@pytest.mark.covers("DS.4")
def test_one_whose_lease_has_passed_gives_up() -> None:
    store(make_run(), make_items(3))
    dataset = Dataset.objects.get()
    with hold(dataset.pk, LATER) as held:
        assert held is not None
        assert not compaction.step(now=LATER)
        with hold(dataset.pk, LATER + LEASE) as successor:
            assert successor is not None
            with pytest.raises(LeaseLost):
                held.confirm()


@pytest.mark.covers("DS.4")
def test_a_damaged_segment_keeps_no_other_dataset_from_its_table() -> None:
    bad, good = make_run(), make_run(job=make_job())
    store(bad, make_items(3))
    damaged = DataFile.objects.get()
    shared_objects().put(damaged.path, b"no Parquet")
    store(good, make_items(3))
    compact_all()
    levels = dict(DataFile.objects.values_list("run_number", "level"))
    assert levels == {bad.pk: Level.SEGMENT, good.pk: Level.TABLE}


@pytest.mark.slow("3 s")
@pytest.mark.covers("DS.4")
def test_snapshots_expire_but_never_that_of_an_open_compaction() -> None:
    run = make_run()
    for number in range(15):
        store(run, make_items(1), first=number + 1)
        compact_all(LATER)
    dataset = Dataset.objects.get()
    table = compaction.tables()._existing(dataset.project_id, dataset.pk)
    assert table is not None
    before = len(table.snapshots())
    opened = Compaction.objects.create(dataset=dataset, run_number=999, started_at=NOW)
    much_later = NOW + timedelta(days=3)
    assert not compaction._clean(much_later)
    opened.delete()
    assert compaction._clean(much_later)
    table = compaction.tables()._existing(dataset.project_id, dataset.pk)
    assert table is not None
    assert before > len(table.snapshots()) >= 10
    assert in_table(dataset) == listed(dataset) == list(range(1, 16))
    assert Counter(DataFile.objects.values_list("level", flat=True))[Level.SEGMENT] == 0


@pytest.mark.slow("15 s")
@pytest.mark.covers("DS.4")
@pytest.mark.parametrize("moved", [1, 3])
def test_a_merge_replaces_its_own_files_and_no_other(moved: int) -> None:
    run = make_run()
    for number in range(15 + moved):
        if number == 15:
            # A large file cannot be part of it.
            DataFile.objects.filter(level=Level.TABLE).update(bytes=compaction.SMALL_BYTES)
        store(run, make_items(2), first=2 * number + 1)
        compact_all()
    dataset = Dataset.objects.get()
    large = set(
        DataFile.objects.filter(bytes=compaction.SMALL_BYTES).values_list("path", flat=True)
    )
    for number in range(15 + moved, 35):
        store(run, make_items(2), first=2 * number + 1)
        compact_all()
    table = compaction.tables()._existing(dataset.project_id, dataset.pk)
    assert table is not None
    files = {task.file.file_path for task in table.scan().plan_files()}
    listed_files = DataFile.objects.values_list("path", flat=True)
    assert {shared_objects().location(path) for path in listed_files} == files
    # The sixteen after the large ones have become one.
    assert large < set(listed_files)
    assert len(files) == 15 + 1 + 4
    assert in_table(dataset) == listed(dataset) == list(range(1, 71))
    with open_reader(dataset) as reader:
        assert [item.seq for item in reader.page(ItemQuery(limit=1000)).items] == listed(dataset)


def test_a_process_that_ends_within_a_compaction_parks_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The catalog's threads take no work any more then."""
    store(make_run(), make_items(3))

    def exiting(*_args: object, **_named: object) -> None:
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    with monkeypatch.context() as patched:
        patched.setattr(Tables, "commit", exiting)
        ENDING.set()
        assert compaction.step(now=LATER)
    ENDING.clear()
    assert "Traceback" not in caplog.text
    compact_all()
    assert set(DataFile.objects.values_list("level", flat=True)) == {Level.TABLE}
