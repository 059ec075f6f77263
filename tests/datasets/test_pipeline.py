"""Items from a batch to a table: stored once, moved into Iceberg, read the same everywhere."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from apps.datasets.engine.filters import FilterOp, ItemFilter
from apps.datasets.engine.item_types import ItemQuery
from apps.datasets.models import Compaction, DataFile, Dataset, DatasetRun
from apps.datasets.queries.items import open_reader, run_accounting
from apps.datasets.services import compaction
from apps.datasets.services.ingestion import store_items
from apps.datasets.states import CompactionState, Kind, Level
from apps.jobs.states import RunOutcome, RunState
from tests.datasets.factories import NOW, make_batch, make_dataset, make_items, store
from tests.jobs.factories import make_job, make_run

LATER = NOW + timedelta(minutes=20)


def compact_all(now: Any = LATER) -> None:
    for _ in range(20):
        if not compaction.step(now=now):
            return


def all_items(dataset: Dataset, runs: list[int] | None = None) -> list[dict[str, Any]]:
    with open_reader(dataset, runs) as reader:
        return [item.data for item in reader.page(ItemQuery(limit=1000)).items]


@pytest.mark.django_db(transaction=True)
@pytest.mark.covers("DS.1", "DS.4")
def test_items_are_the_same_fresh_and_in_the_table() -> None:
    run = make_run()
    items = make_items(30)
    store(run, items[:20])
    store(run, items[20:], first=21)
    dataset = Dataset.objects.get()
    assert (dataset.name, dataset.items) == (run.job.name, 30)
    assert all_items(dataset) == items
    assert set(DataFile.objects.values_list("level", flat=True)) == {Level.SEGMENT}
    compact_all()
    assert set(DataFile.objects.values_list("level", "items")) == {(Level.TABLE, 30)}
    assert not Compaction.objects.filter(state=CompactionState.STARTED).exists()
    assert all_items(dataset) == items
    table = compaction.tables()._existing(dataset.project_id, dataset.pk)
    assert table is not None
    rows = table.scan().to_arrow().sort_by("_seq")
    assert rows["url"].to_pylist() == [item["url"] for item in items]
    assert rows["price"].to_pylist() == [item["price"] for item in items]
    assert rows["tags"].to_pylist()[0] == '["new","t1"]'


@pytest.mark.django_db(transaction=True)
@pytest.mark.covers("DS.1")
def test_repeated_batches_are_stored_once() -> None:
    run = make_run()
    batch = make_batch(run, make_items(10))
    assert store_items(messages=[batch, batch], now=NOW) == []
    assert store_items(messages=[batch], now=NOW) == []
    overlapping = make_batch(run, make_items(10, start=6), first=6)
    assert store_items(messages=[overlapping], now=NOW) == []
    assert len(all_items(Dataset.objects.get())) == 15
    row = DatasetRun.objects.get()
    assert (row.stored, row.duplicates) == (15, 25)
    assert run_accounting(run.pk).in_flight == 0


@pytest.mark.django_db(transaction=True)
def test_a_batch_with_a_name_is_stored_once_whoever_sends_it() -> None:
    project = make_job().project
    batches = [
        make_batch(
            1, make_items(3), producer=f"biz:{project.pk}/news", boot=boot, once="biz:news:77"
        )
        for boot in ("r77", "r77")
    ]
    assert store_items(messages=batches[:1], now=NOW) == []
    assert store_items(messages=batches[1:], now=NOW) == []
    dataset = Dataset.objects.get()
    assert (dataset.name, dataset.origin, dataset.items) == ("news", "biz", 3)
    compact_all()
    assert len(all_items(dataset)) == 3


@pytest.mark.django_db(transaction=True)
@pytest.mark.covers("DS.5")
def test_filters_sort_and_pages() -> None:
    run = make_run()
    store(run, make_items(40))
    compact_all()
    store(run, make_items(20, start=41), first=41)
    dataset = Dataset.objects.get()
    with open_reader(dataset) as reader:
        query = ItemQuery(filters=(ItemFilter("stock", FilterOp.EQUALS, "3"),), limit=5)
        page = reader.page(query)
        assert [item.data["stock"] for item in page.items] == [3] * 5
        rest = reader.page(ItemQuery(filters=query.filters, limit=50, after=page.next))
        assert reader.count(query) == 5 + len(rest.items) == 9
        assert rest.next == ""
        top = reader.page(ItemQuery(sort="-price", limit=2))
        assert [item.data["price"] for item in top.items] == [60.5, 59.5]
        text = reader.page(ItemQuery(text="product 6"))
        assert [item.data["title"] for item in text.items] == ["Product 6", "Product 60"]
        some = ItemQuery(filters=(ItemFilter("price", FilterOp.AT_LEAST, 59),))
        assert reader.count(some) == 2
        values = reader.values("stock", ItemQuery())
        assert (values.count, values.distinct, values.low, values.high) == (60, 7, "0", "6")
        assert sum(number for _value, number in values.top) == 60


@pytest.mark.django_db(transaction=True)
@pytest.mark.covers("DS.7", "DS.8")
def test_two_runs_are_compared_and_the_latest_is_known() -> None:
    job = make_job()
    first, second = make_run(job=job), make_run(job=job)
    store(first, make_items(10))
    store(second, [*make_items(7, start=2), *make_items(1, start=9, stock=99), *make_items(3, 20)])
    dataset = Dataset.objects.get()
    Dataset.objects.update(key_fields=["url"])
    dataset.refresh_from_db()
    compact_all()
    with open_reader(dataset) as reader:
        found = reader.compare(first.pk, second.pk)
        assert (found.added, found.removed, found.changed, found.equal) == (3, 2, 1, 7)
        (changed,), _ = reader.compared(first.pk, second.pk, "changed")
        assert changed.key == ["https://shop.example/p/9"]
        assert changed.fields == ["stock"]
        latest = reader.page(ItemQuery(latest=True, limit=100)).items
        assert len(latest) == 13
        assert {item.run for item in latest} == {first.pk, second.pk}
        history = reader.history(["https://shop.example/p/9"])
        assert [item.run for item in history] == [second.pk, first.pk]


@pytest.mark.django_db(transaction=True)
@pytest.mark.covers("DS.9")
def test_the_outcome_of_a_run_follows_the_checks_of_its_data() -> None:
    run = make_run(state=RunState.EXITED)
    store(run, make_items(10))
    filled = {"check": "fill_rate", "field": "price", "value": 0.5}
    Dataset.objects.update(checks=[{"check": "items_at_least", "value": 11}, filled])
    compact_all()
    run.refresh_from_db()
    assert (run.failed_checks, run.outcome) == (1, RunOutcome.FINISHED_WITH_ERRORS)
    # Requests of the run have no checks, and settle on their own.
    requests = make_dataset(run.job.project, name="requests", kind=Kind.REQUESTS)
    DatasetRun.objects.create(dataset=requests, run_number=run.pk)
    compact_all()
    run.refresh_from_db()
    assert run.failed_checks == 1
    # The item that was missing comes after the end.
    store(run, make_items(1, start=11), first=11)
    compact_all()
    run.refresh_from_db()
    assert (run.failed_checks, run.outcome) == (0, RunOutcome.SUCCEEDED)
