"""The records of one request, read back from the dataset of its biz."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from apps.datasets.models import DataFile
from apps.datasets.services.ingestion import store_items
from apps.requeststore.engine.biz import Biz, DestinationKind, Records
from apps.requeststore.queries.given_records import MOST_RECORDS, FoundRecords, records_given
from apps.requeststore.sinks.dataset import DatasetSink
from apps.requeststore.stores.base import StoredRequest
from tests.jobs.factories import make_project
from tests.requeststore.test_sinks import NOW, gathered
from yardkit.protocol import ItemBatch, decode

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def stores(settings: Any, tmp_path: Path) -> None:
    settings.OBJECTS_URL = f"file://{tmp_path}/objects"
    settings.RECORDS_URL = f"sqlite:///{tmp_path}/records.sqlite3"


class _Kept:
    """A broker that keeps what is published."""

    def __init__(self) -> None:
        self.batches: list[ItemBatch] = []

    def publish(self, messages: Any) -> Any:
        from concurrent.futures import Future

        for message in messages:
            batch = decode(message.body)
            assert isinstance(batch, ItemBatch)
            self.batches.append(batch)
        done: Future[None] = Future()
        done.set_result(None)
        return done


def keep_records(project: int, *requests: Any) -> None:
    """Store records as fetcher and writer do it."""
    broker: Any = _Kept()
    DatasetSink(broker, f"biz:{project}/news").write(requests)
    now = datetime.fromtimestamp(NOW / 1000, UTC)
    assert store_items(messages=broker.batches, now=now) == []


def look(
    project: int, number: int, to: DestinationKind = DestinationKind.DATASET
) -> FoundRecords | None:
    request = StoredRequest(id=number, ts=NOW, biz="news", data=b"", flag=1, finished_at=NOW)
    return records_given(request, Biz(records=Records(to=to)), project_id=project)


@pytest.mark.covers("S4.29", "DS.3")
def test_they_come_back_in_their_order_and_no_others() -> None:
    project = make_project().pk
    before = look(project, 12)
    assert before is not None
    assert (before.records, before.problem) == ([], "")
    rows = [{"title": f"标题 {number}", "price": number} for number in range(3)]
    keep_records(
        project, gathered(1, {"title": "other"}), gathered(12, *rows), gathered(123, {"x": 1})
    )
    keep_records(project, gathered(12, *rows, again=True))
    assert DataFile.objects.count() == 1
    found = look(project, 12)
    assert found is not None
    assert found.records == [{**row, "_rule": "article"} for row in rows]
    assert (found.to, found.where, found.more) == ("dataset", "news", False)


def test_no_more_than_somebody_reads() -> None:
    project = make_project().pk
    keep_records(project, gathered(5, *({"n": number} for number in range(MOST_RECORDS + 9))))
    found = look(project, 5)
    assert found is not None
    assert found.records is not None
    assert (len(found.records), found.more) == (MOST_RECORDS, True)


@pytest.mark.covers("DS.3")
def test_records_of_earlier_versions_are_read_from_their_table(tmp_path: Path) -> None:
    project = make_project().pk
    with closing(sqlite3.connect(tmp_path / "records.sqlite3")) as file:
        table = f"records_p{project}_news"
        file.execute(f"CREATE TABLE {table} (request_id INTEGER, position INTEGER, title TEXT)")
        file.execute(f"INSERT INTO {table} VALUES (7, 0, 'old')")  # noqa: S608 - a test's own
        file.commit()
    found = look(project, 7)
    assert found is not None
    assert found.records == [{"request_id": "7", "position": 0, "title": "old"}]
    assert (found.to, found.where) == ("table", table)


def test_what_cannot_be_read_says_why(settings: Any) -> None:
    project = make_project().pk
    nowhere = look(project, 5, DestinationKind.NOWHERE)
    assert nowhere is not None
    assert nowhere.records == []
    settings.RECORDS_URL = "postgresql://u:canary@127.0.0.1:9/x"
    found = look(project, 5)
    assert found is not None
    assert found.records is None
    assert found.problem
    assert "canary" not in found.problem
