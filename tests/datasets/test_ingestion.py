"""Items are stored once, whatever comes twice, late, damaged or forged; each is accounted for."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.conf import settings as django_settings
from django.db import IntegrityError, connection
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.datasets.engine.accounting import MOST_REASONS, OTHER_REASONS, merged_reasons
from apps.datasets.engine.reader import ItemQuery
from apps.datasets.models import DataFile, Dataset, DatasetRun, ItemStream
from apps.datasets.queries.items import open_reader, run_accounting
from apps.datasets.services import ingestion
from apps.datasets.services.ingestion import store_items
from apps.jobs.models import Run
from apps.queuestats.models import RunCounter
from apps.runtime.models import ProcessedMessage
from tests.datasets.factories import NOW, make_batch, make_items, store
from tests.jobs.factories import make_job, make_run
from yardkit.items.batches import encode_line, pack
from yardkit.protocol import ItemBatch
from yardkit.tokens import sign_pages_token, sign_run_token

pytestmark = pytest.mark.django_db


@pytest.fixture
def run() -> Run:
    return make_run()


def stored(run: Run) -> list[dict[str, Any]]:
    with open_reader(Dataset.objects.get(origin_id=run.job_id), [run.pk]) as reader:
        return [item.data for item in reader.page(ItemQuery(limit=1000)).items]


def refused(*messages: ItemBatch) -> list[str]:
    return [found.reason for found in store_items(messages=messages, now=NOW)]


def changed(batch: ItemBatch, **fields: Any) -> ItemBatch:
    return msgspec.structs.replace(batch, **fields)


# --- once -----------------------------------------------------------------------------------------


@settings(
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    parts=st.lists(
        st.tuples(st.integers(1, 40), st.integers(1, 15), st.sampled_from(["b1", "b2"])),
        min_size=1,
        max_size=12,
    ),
    together=st.integers(1, 5),
)
@pytest.mark.slow("made-up batches in every order")
@pytest.mark.covers("DS.1")
def test_any_order_of_overlapping_batches_stores_each_item_once(
    parts: list[tuple[int, int, str]], together: int
) -> None:
    run = make_run()
    wanted: set[tuple[str, int]] = set()
    batches = []
    for first, count, boot in parts:
        items = [{"n": number, "of": boot} for number in range(first, first + count)]
        batches.append(make_batch(run, items, first=first, boot=boot))
        wanted |= {(boot, item["n"]) for item in items if isinstance(item["n"], int)}
    for begin in range(0, len(batches), together):
        assert refused(*batches[begin : begin + together]) == []
    found = [(item["of"], item["n"]) for item in stored(run)]
    assert sorted(found) == sorted(wanted)
    row = DatasetRun.objects.get(run_number=run.pk)
    assert row.stored == len(wanted)
    assert row.duplicates == sum(count for _first, count, _boot in parts) - len(wanted)


def test_executions_are_kept_apart_and_seqs_are_kept(run: Run) -> None:
    store(run, make_items(2), boot="b1")
    store(run, make_items(2), boot="b2")
    with open_reader(Dataset.objects.get()) as reader:
        items = reader.page(ItemQuery()).items
    assert [(item.incarnation, item.seq) for item in items] == [
        ("b1", 1),
        ("b1", 2),
        ("b2", 1),
        ("b2", 2),
    ]


def test_names_of_batches_belong_to_their_producers() -> None:
    project, other = make_job().project, make_job().project
    values = {"once": "77", "token": ""}
    batches = [
        make_batch(1, make_items(1), producer=f"{kind}:{owner.pk}/news", **values)
        for kind, owner in (("biz", project), ("source", project), ("biz", other))
    ]
    assert refused(*batches, *batches) == []
    assert refused(*batches) == []
    rows = DatasetRun.objects.values_list("stored", "duplicates")
    assert list(rows) == [(1, 2)] * 3
    assert ProcessedMessage.objects.filter(consumer="datasets").count() == 3


def test_gaps_beyond_the_limit_refuse_the_batch_and_no_other(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yardkit.spans.MOST_SPANS", 2)
    batches = [make_batch(run, make_items(1), first=first) for first in (1, 3, 5, 2)]
    (reason,) = refused(*batches)
    assert "more than 2 gaps" in reason
    # It can come again once the gaps are filled.
    assert refused(batches[2]) == []
    assert DatasetRun.objects.get().stored == 4


def test_another_writer_that_was_faster_costs_nothing(
    run: Run, monkeypatch: pytest.MonkeyPatch, objects: Path
) -> None:
    """Between the look at what is known and the transaction, the same batch is stored."""
    batch = make_batch(run, make_items(5))
    put = ingestion.segments.write
    others = [batch]

    def written(table: Any) -> bytes:
        while others:
            assert refused(others.pop()) == []
        return put(table)

    monkeypatch.setattr(ingestion.segments, "write", written)
    assert refused(batch, make_batch(run, make_items(5, 6, color="red"), first=6)) == []
    assert [item["url"][-1] for item in stored(run)] == list("1234567890")
    row = DatasetRun.objects.get()
    assert (row.stored, row.duplicates) == (10, 5)
    assert {path.name for path in objects.rglob("*.parquet")} == {
        Path(path).name for path in DataFile.objects.values_list("path", flat=True)
    }


def test_a_collision_of_names_is_seen_in_the_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    project = make_job().project
    batch = make_batch(1, make_items(2), producer=f"biz:{project.pk}/news", once="7")
    put = ingestion.segments.write
    others = [batch]

    def written(table: Any) -> bytes:
        while others:
            assert refused(others.pop()) == []
        return put(table)

    monkeypatch.setattr(ingestion.segments, "write", written)
    assert refused(batch) == []
    assert (Dataset.objects.get().items, DatasetRun.objects.get().duplicates) == (2, 2)


# --- accounted --------------------------------------------------------------------------------


def reported(run: Run, items: int, **fields: Any) -> None:
    RunCounter.objects.create(
        owner=f"run:{run.pk}",
        project=run.job.project,
        boot="b1",
        items=items,
        updated_at=NOW,
        **fields,
    )


@pytest.mark.covers("DS.2")
def test_yielded_is_stored_rejected_dropped_and_in_flight(run: Run) -> None:
    store(run, make_items(1))
    Dataset.objects.update(item_schema={"properties": {"price": {"type": "number"}}})
    items = [*make_items(3, 2), {"price": "x"}, {"price": "y"}]
    store(run, items, first=2)
    reported(run, 12, dropped={"not JSON": 2})
    found = run_accounting(run.pk)
    assert (found.yielded, found.stored, found.rejected, found.dropped) == (12, 4, 2, 2)
    assert (found.in_flight, found.balanced) == (4, True)
    assert found.reasons == {"price: type": 2, "not JSON": 2}


@pytest.mark.covers("DS.2")
def test_what_is_stored_before_the_run_reports_it_is_not_missing(run: Run) -> None:
    store(run, make_items(5))
    reported(run, 2)
    found = run_accounting(run.pk)
    assert (found.yielded, found.in_flight, found.balanced) == (5, 0, True)


@pytest.mark.covers("DS.2")
def test_what_is_no_item_is_rejected_with_its_reason(run: Run) -> None:
    packed, size = pack([encode_line("", {"a": 1}), b'["",7]', encode_line("", {"a": 2})])
    batch = changed(make_batch(run, [{}] * 3), lines=packed, raw_bytes=size)
    assert refused(batch) == []
    row = DatasetRun.objects.get()
    assert (row.stored, row.rejected, list(row.reasons.values())) == (2, 1, [1])
    assert next(iter(row.reasons)).startswith("not a JSON object")
    # Rejected ones keep their numbers: again they are duplicates, and the others have theirs.
    assert refused(batch) == []
    row.refresh_from_db()
    assert (row.stored, row.rejected, row.duplicates) == (2, 1, 3)
    with open_reader(Dataset.objects.get()) as reader:
        assert [item.seq for item in reader.page(ItemQuery()).items] == [1, 3]


def test_a_batch_of_rejected_items_makes_no_file(run: Run) -> None:
    packed, size = pack([b'["",7]'])
    assert refused(changed(make_batch(run, [{}]), lines=packed, raw_bytes=size)) == []
    assert not DataFile.objects.exists()
    assert (Dataset.objects.get().last_batch, DatasetRun.objects.get().rejected) == (0, 1)


def test_reasons_beyond_the_limit_are_merged() -> None:
    many = {f"reason {number}": 2 for number in range(MOST_REASONS + 10)}
    once = merged_reasons({}, many)
    assert (len(once), once[OTHER_REASONS]) == (MOST_REASONS + 1, 20)
    again = merged_reasons(once, {"new": 1})
    assert len(again) <= MOST_REASONS + 1
    assert sum(again.values()) == sum(many.values()) + 1


@pytest.mark.covers("DS.2")
def test_sums_and_statistics_grow_with_each_batch(run: Run) -> None:
    store(run, make_items(3), at=NOW - timedelta(hours=1))
    store(run, [{"price": "none"}, {"more": 1}], first=4)
    dataset, row = Dataset.objects.get(), DatasetRun.objects.get()
    files = list(DataFile.objects.order_by("first_batch"))
    assert [(file.first_batch, file.last_batch, file.items) for file in files] == [
        (1, 1, 3),
        (2, 2, 2),
    ]
    assert (dataset.items, dataset.last_batch) == (5, 2)
    assert dataset.bytes == row.bytes == sum(file.bytes for file in files)
    assert dataset.raw_bytes == row.raw_bytes == sum(file.raw_bytes for file in files)
    assert (row.first_at, row.last_at) == (NOW - timedelta(hours=1), NOW)
    assert row.fields["price"]["types"] == {"double": 3, "string": 1}
    assert (row.fields["stock"]["count"], row.fields["stock"]["high"]) == (3, 3.0)
    assert [column["column"] for column in dataset.columns][-2:] == ["price__string", "more"]


def test_only_new_items_make_a_settled_run_unsettled(run: Run) -> None:
    store(run, make_items(3))
    DatasetRun.objects.update(settled_at=NOW)
    store(run, make_items(3))
    assert DatasetRun.objects.get().settled_at == NOW
    store(run, make_items(1, 4), first=4)
    assert DatasetRun.objects.get().settled_at is None


# --- refused ------------------------------------------------------------------------------------


@pytest.mark.slow("1 s")
@pytest.mark.covers("DS.1")
@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"token": ""}, "the token is not that of run:"),
        ({"token": sign_run_token("another secret", 1)}, "the token is not that of run:"),
        ({"producer": "run:x"}, "the token is not that of run:x"),
        ({"producer": "run:" + "9" * 30}, "the token is not that of"),
        ({"producer": "job:7"}, "'job:7' is no producer of items"),
        ({"producer": "biz:7"}, "'biz:7' is no producer of items"),
        ({"producer": "biz:07/news"}, "is no producer of items"),
        ({"producer": "biz:" + "9" * 19 + "/news"}, "is no producer of items"),
        ({"producer": "biz:999999/news"}, "project 999999 does not exist"),
        ({"producer": ""}, "producer is ''"),
        ({"producer": "biz:1/" + "x" * 100}, "producer is"),
        ({"boot": ""}, "boot is ''"),
        ({"boot": "a\0b"}, "boot is"),
        ({"boot": "b" * 65}, "boot is"),
        ({"once": "o" * 151}, "once is"),
        ({"first": 0}, "items 0 to 1"),
        ({"first": 2**62 + 1}, "items"),
        ({"count": 0}, "items 1 to 0"),
        ({"count": 3}, "a batch of 2 items that is said to have 3"),
        ({"at": float("nan")}, "at is nan"),
        ({"at": 1e300}, r"at is 1e\+300"),
        ({"at": -1.0}, "at is -1.0"),
        ({"lines": b"damaged"}, "damaged batch"),
        ({"raw_bytes": 10**12}, "a batch of 1000000000000 bytes"),
    ],
    ids=str,
)
def test_what_cannot_be_stored_is_refused_with_its_reason(
    run: Run, fields: dict[str, Any], why: str
) -> None:
    good = make_batch(run, make_items(1), first=9)
    (found,) = store_items(
        messages=[changed(make_batch(run, make_items(2)), **fields), good], now=NOW
    )
    assert re.search(why, found.reason), found.reason
    assert DatasetRun.objects.get().stored == 1


def test_a_run_that_is_gone_is_named(run: Run) -> None:
    batch = make_batch(run, make_items(1))
    number = run.pk
    run.delete()
    assert refused(batch) == [f"run {number} does not exist"]
    assert not Dataset.objects.exists()


def test_an_ended_run_still_gets_its_items(run: Run) -> None:
    Run.objects.update(state="exited", ended_at=NOW - timedelta(days=3))
    store(run, make_items(4))
    assert len(stored(run)) == 4


# --- steps ------------------------------------------------------------------------------------


def test_many_messages_of_a_run_make_one_file_and_few_queries(run: Run) -> None:
    store(run, make_items(1))
    batches = [make_batch(run, make_items(10), first=2 + 10 * number) for number in range(20)]
    with CaptureQueriesContext(connection) as queries:
        assert refused(*batches) == []
    assert len(queries) <= 18, [query["sql"][:80] for query in queries]
    assert list(DataFile.objects.values_list("items", flat=True).order_by("id")) == [1, 200]


def test_a_step_has_a_limit(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingestion, "MAX_STEP_BYTES", 3000)
    batches = [make_batch(run, make_items(10), first=1 + 10 * number) for number in range(5)]
    assert max(batch.raw_bytes for batch in batches) < 3000 < 3 * batches[0].raw_bytes
    assert refused(*batches) == []
    assert list(DataFile.objects.values_list("items", flat=True).order_by("id")) == [20, 20, 10]
    assert len(stored(run)) == 50


def test_runs_of_one_step_have_files_of_their_own() -> None:
    job = make_job()
    runs = [make_run(job=job) for _ in range(3)]
    assert refused(*(make_batch(run, make_items(3)) for run in runs)) == []
    assert Dataset.objects.get().last_batch == 3
    files = DataFile.objects.order_by("first_batch").values_list("run_number", "items")
    assert list(files) == [(run.pk, 3) for run in runs]


def test_a_failed_transaction_leaves_nothing_but_an_object(
    run: Run, monkeypatch: pytest.MonkeyPatch, objects: Path
) -> None:
    batch = make_batch(run, make_items(3))
    with monkeypatch.context() as patch:
        patch.setattr(DataFile.objects, "bulk_create", _failing)
        with pytest.raises(IntegrityError):
            store_items(messages=[batch], now=NOW)
    assert not ItemStream.objects.exists()
    assert not DatasetRun.objects.exists()
    assert len(list(objects.rglob("*.parquet"))) == 1
    assert refused(batch) == []
    assert len(stored(run)) == 3


def _failing(*_rows: object) -> None:
    raise IntegrityError("made up")


@pytest.mark.parametrize("kind", ["requests", "pages"])
def test_requests_and_pages_need_the_token_of_their_run_and_are_no_items(
    run: Run, kind: str
) -> None:
    token = sign_run_token(django_settings.SECRET_KEY, run.pk)
    if kind == "pages":
        # Agents send them, and have no token of the run.
        token = sign_pages_token(django_settings.SECRET_KEY, run.job.project_id, run.pk)
    batch = make_batch(run, make_items(3), producer=f"{kind}:{run.pk}", token=token)
    assert not refused(batch)
    assert refused(changed(batch, first=4, token="x")) == [
        f"the token is not that of {kind}:{run.pk}"
    ]
    assert not refused(batch)
    assert run_accounting(run.pk).yielded == 0
    row = DatasetRun.objects.get(run_number=run.pk)
    assert (row.stored, row.duplicates, row.dataset.kind) == (3, 3, kind)
