"""The reader reads files that replace missing ones, and no file that the manifest does not name."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import duckdb
import pytest

from apps.datasets.engine.errors import BadItemQuery, DataUnavailable
from apps.datasets.engine.filters import FilterOp, ItemFilter
from apps.datasets.engine.item_types import ItemQuery
from apps.datasets.engine.reader import ItemReader
from apps.datasets.models import DataFile, Dataset
from apps.datasets.queries.items import open_reader
from apps.datasets.services import compaction
from apps.jobs.models import Run
from apps.jobs.states import RunState
from apps.runtime.services.objects import shared_objects
from tests.datasets.factories import NOW, make_items, store
from tests.jobs.factories import make_job, make_run
from tests.plugins.s3_server import Bucket

pytestmark = pytest.mark.django_db(transaction=True)

LATER: Final = NOW + timedelta(minutes=20)
READS: Final[dict[str, Callable[[ItemReader, int], Any]]] = {
    "page": lambda reader, _run: [item.seq for item in reader.page(ItemQuery(limit=50)).items],
    "newest": lambda reader, _run: [item.seq for item in reader.page(ItemQuery(newest=True)).items],
    "sorted": lambda reader, _run: [
        item.seq for item in reader.page(ItemQuery(sort="-price")).items
    ],
    "count": lambda reader, _run: reader.count(ItemQuery(text="product 1")),
    "values": lambda reader, _run: reader.values("stock", ItemQuery()),
    "batches": lambda reader, _run: sum(len(batch) for batch in reader.batches(ItemQuery())),
    "compare": lambda reader, run: reader.compare(run, run),
    "compared": lambda reader, run: len(reader.compared(run, run, "equal")[0]),
    "history": lambda reader, _run: len(reader.history(["https://shop.example/p/3"])),
    "duplicates": lambda reader, _run: reader.duplicates(),
    "since": lambda reader, _run: [
        item.seq for _batch, _taken, items in reader.since(0, 0, 7) for item in items
    ],
    "place": lambda reader, _run: reader.place(15)[1],
}


@pytest.fixture(params=["folder", "bucket"])
def dataset(request: pytest.FixtureRequest, settings: Any) -> Dataset:
    """A dataset with the items of two batches, in segments."""
    if request.param == "bucket":
        bucket: Bucket = request.getfixturevalue("s3_bucket")
        settings.OBJECTS_URL = bucket.url
        settings.OBJECTS_ACCESS_KEY = bucket.access_key
        settings.OBJECTS_SECRET_KEY = bucket.secret_key
    run = make_run()
    store(run, make_items(10))
    store(run, make_items(10, start=11), first=11)
    Dataset.objects.update(key_fields=["url"])
    return Dataset.objects.get()


def compact() -> None:
    for _ in range(30):
        if not compaction.step(now=LATER):
            return


def replace_files(dataset: Dataset) -> None:
    """Move the items into other files, and delete those that held them."""
    old = list(DataFile.objects.values_list("path", flat=True))
    compact()
    shared_objects().delete(old)
    assert not {*old} & {*DataFile.objects.filter(dataset=dataset).values_list("path", flat=True)}


@pytest.mark.slow("15 s")
@pytest.mark.covers("DS.4", "DS.5")
@pytest.mark.parametrize("name", READS)
def test_a_file_that_was_replaced_is_read_where_its_items_are_now(
    dataset: Dataset, name: str
) -> None:
    read, (run,) = READS[name], dataset.runs.values_list("run_number", flat=True)
    with open_reader(dataset) as reader:
        expected = read(reader, run)
    with open_reader(dataset) as reader:
        replace_files(dataset)
        assert read(reader, run) == expected


@pytest.mark.slow("10 s")
@pytest.mark.covers("DS.4")
@pytest.mark.parametrize("name", ["page", "batches", "compare", "since"])
def test_a_file_of_the_table_that_was_merged_is_read_where_its_items_are_now(
    dataset: Dataset, name: str
) -> None:
    read, (run,) = READS[name], dataset.runs.values_list("run_number", flat=True)
    compact()
    store(Run.objects.get(), make_items(5, start=21), first=21)
    compact()
    with open_reader(dataset) as reader:
        expected = read(reader, run)
    with open_reader(dataset) as reader:
        Run.objects.update(state=RunState.EXITED, ended_at=NOW)
        replace_files(dataset)
        assert read(reader, run) == expected


@pytest.mark.slow("2 s")
@pytest.mark.covers("DS.4", "DS.10")
def test_items_stream_on_over_replaced_files(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows of one batch, as of an export that takes longer than replaced files stay."""
    monkeypatch.setattr("apps.datasets.engine.streaming.WINDOW_ITEMS", 10)
    with open_reader(dataset) as reader:
        stream = reader.since(0, 0, 100)
        _batch, _taken, items = next(stream)
        assert [item.seq for item in items] == list(range(1, 11))
        replace_files(dataset)
        rest = [item.seq for _batch, _taken, found in stream for item in found]
    assert rest == list(range(11, 21))


@pytest.mark.slow("2 s")
@pytest.mark.covers("DS.4")
@pytest.mark.parametrize("in_table", [False, True], ids=["segments", "table"])
def test_a_file_that_is_lost_is_an_error(dataset: Dataset, in_table: bool) -> None:
    if in_table:
        replace_files(dataset)
    files = DataFile.objects.filter(dataset=dataset)
    with open_reader(dataset) as reader:
        shared_objects().delete(list(files.values_list("path", flat=True)))
        with pytest.raises(DataUnavailable):
            reader.page(ItemQuery())


@pytest.mark.slow("3 s")
@pytest.mark.covers("DS.5", "DS.6")
def test_no_query_reads_a_file_or_changes_a_setting(dataset: Dataset, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("canary")
    sibling = tmp_path / "objects" / "datasets" / f"p{dataset.project_id}" / f"d{dataset.pk}0"
    sibling.mkdir(parents=True)
    (sibling / "secret").write_text("canary")
    made_up = [f"read_text('{secret}')", f"x\" FROM read_text('{secret}') --", str(secret)]
    store(make_run(job=make_job()), [dict.fromkeys(made_up, "value")])
    other = Dataset.objects.exclude(pk=dataset.pk).get()
    for name in made_up:
        # As the name of a field that there is, and of one that there is not.
        with open_reader(other) as reader:
            query = ItemQuery(filters=(ItemFilter(name, FilterOp.EQUALS, "value"),), sort=name)
            (item,) = reader.page(query).items
            assert item.data[name] == "value"
            assert reader.values(name, query).top == [("value", 1)]
            assert [len(batch) for batch in reader.batches(query, fields=[name])] == [1]
        with open_reader(dataset) as reader:
            for query in (
                ItemQuery(filters=(ItemFilter(name, FilterOp.CONTAINS, "c"),)),
                ItemQuery(sort=name),
            ):
                with pytest.raises(BadItemQuery):
                    reader.page(query)
            with pytest.raises(BadItemQuery):
                reader.values(name, ItemQuery())
            assert reader.count(ItemQuery(text=name)) == 0
    with open_reader(dataset) as reader:
        assert reader.count(ItemQuery(text="Product 2")) == 2
        for statement in (
            f"FROM read_text('{secret}')",
            f"FROM read_text('{sibling}/secret')",
            f"FROM read_text('{sibling.parent}/d{dataset.pk}/../../../../secret')",
            "FROM glob('/etc/*')",
            f"COPY (SELECT 1) TO '{tmp_path}/made'",
            f"ATTACH '{tmp_path}/made'",
            "SET enable_external_access = true",
            "SET allowed_directories = ['/']",
            "INSTALL httpfs",
        ):
            with pytest.raises((duckdb.Error, DataUnavailable)):
                reader._rows(statement)
    assert not (tmp_path / "made").exists()
