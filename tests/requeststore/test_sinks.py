"""Every kind of sink keeps the records of a request once, and all of them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pika
import psycopg
import pytest

from apps.requeststore.engine.biz import DestinationKind, Records
from apps.requeststore.engine.errors import BadSetting
from apps.requeststore.sinks.base import RequestRecords, Sink, SinkUnavailable
from apps.requeststore.sinks.databases import ColumnType, RecordsDatabase, open_database
from apps.requeststore.sinks.factory import SinkContext, open_sink, table_of
from apps.requeststore.sinks.table import TableSink, column_of, fit, kind_of
from yardkit.broker import Broker, connect

NOW = 1_790_000_000_000
POSTGRES = pytest.param("postgresql", marks=pytest.mark.services)
Rows = list[dict[str, Any]]


def gathered(number: int, *rows: dict[str, Any], **fields: Any) -> RequestRecords:
    values: dict[str, Any] = {
        "request_id": number,
        "ts": NOW,
        "biz": "news",
        "rule": "article",
        "url": "http://a.example/",
        "fetched_at": NOW,
        "rows": rows,
    }
    return RequestRecords(**(values | fields))


@pytest.fixture(params=["sqlite", POSTGRES])
def records_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a database of the test's own."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'records.sqlite3'}"
    return str(request.getfixturevalue("empty_database"))


def read_table(url: str, table: str = "records_p7_news") -> Rows:
    """In the order of their keys."""
    query = f'SELECT * FROM "{table}" ORDER BY request_id, position'  # noqa: S608 - a test's own
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
            file.row_factory = sqlite3.Row
            return [dict(row) for row in file.execute(query)]
    with psycopg.connect(url, row_factory=psycopg.rows.dict_row) as server:
        return server.execute(query).fetchall()


@pytest.fixture
def context(tmp_path: Path, broker: Broker, records_url: str) -> SinkContext:
    return SinkContext(records_url, tmp_path / "files", broker, "box", lambda: NOW)


def opened(
    context: SinkContext, to: DestinationKind = DestinationKind.TABLE, **fields: Any
) -> Sink:
    return open_sink(context, project_id=7, biz="news", records=Records(to=to, **fields))


def read_lines(folder: Path) -> Rows:
    return [
        json.loads(line)
        for path in sorted(folder.rglob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]


def read_queue(broker: Broker, queue: str = "records.p7.news") -> Rows:
    with closing(broker.subscribe(queue)) as subscription:
        return [json.loads(each.body) for each in subscription.take(1000, timeout=5)]


# --- what all of them promise ---------------------------------------------------------------------


READERS: dict[DestinationKind, Callable[[SinkContext], list[tuple[str, int, Any]]]] = {
    DestinationKind.TABLE: lambda context: [
        (str(row["request_id"]), row["position"], row["title"])
        for row in read_table(context.records_url)
    ],
    DestinationKind.JSON_LINES: lambda context: [
        (row["request_id"], row["position"], row["record"]["title"])
        for row in read_lines(context.folder)
    ],
    DestinationKind.QUEUE: lambda context: [
        (row["request_id"], row["position"], row["record"]["title"])
        for row in read_queue(context.broker)
    ],
}


@pytest.mark.covers("S4.20", "S4.21")
@pytest.mark.parametrize("to", READERS)
def test_records_are_stored_with_their_request(context: SinkContext, to: DestinationKind) -> None:
    with closing(opened(context, to)) as sink:
        assert sink.write([gathered(2**62, {"title": "a"}, {"title": "b"}), gathered(3)]) == {}

    number = str(2**62)
    assert READERS[to](context) == [(number, 0, "a"), (number, 1, "b")]


@pytest.mark.covers("S4.22")
@pytest.mark.parametrize("to", [DestinationKind.TABLE, DestinationKind.JSON_LINES])
def test_a_request_that_is_taken_again_has_its_records_once(
    context: SinkContext, to: DestinationKind
) -> None:
    with closing(opened(context, to)) as sink:
        sink.write([gathered(1, {"title": "a"}, {"title": "b"}), gathered(2, {"title": "c"})])
    with closing(opened(context, to)) as sink:
        sink.write(
            [
                gathered(1, {"title": "a"}, {"title": "b"}, again=True),
                gathered(3, {"title": "d"}, again=True),
            ]
        )

    expected = [("1", 0, "a"), ("1", 1, "b"), ("2", 0, "c"), ("3", 0, "d")]
    assert READERS[to](context) == expected


@pytest.mark.parametrize("to", READERS)
def test_strange_texts_are_kept_as_far_as_they_can_be(
    context: SinkContext, to: DestinationKind
) -> None:
    with closing(opened(context, to)) as sink:
        record = {"title": "nul\0 \ud800 中文", "more": {"k\0": ["\0"]}}
        assert sink.write([gathered(1, record, url="http://a/\ud800", meta={"\0": "\0"})]) == {}

    assert READERS[to](context) == [("1", 0, "nul ? 中文")]


def test_nowhere_keeps_nothing(context: SinkContext) -> None:
    with closing(opened(context, DestinationKind.NOWHERE)) as sink:
        assert sink.write([gathered(1, {"title": "a"})]) == {}


def test_messages_have_the_ids_of_their_records(context: SinkContext) -> None:
    with closing(opened(context, DestinationKind.QUEUE, name="articles")) as sink:
        sink.write([gathered(5, {"n": 1}, {"n": 2})])

    with closing(context.broker.subscribe("records.p7.articles")) as subscription:
        found = subscription.take(10, timeout=5)
    assert [each.message_id for each in found] == ["5-0", "5-1"]
    assert json.loads(found[0].body) == {
        "request_id": "5",
        "position": 0,
        "of": 2,
        "biz": "news",
        "rule": "article",
        "url": "http://a.example/",
        "fetched_at": "2026-09-21T14:13:20.000Z",
        "meta": {},
        "record": {"n": 1},
    }


def test_a_queue_that_somebody_deleted_is_made_again(context: SinkContext) -> None:
    sink = opened(context, DestinationKind.QUEUE)
    sink.write([gathered(1, {"n": 1})])
    context.broker.delete("records.p7.news")
    with pytest.raises(SinkUnavailable, match=r"records\.p7\.news"):
        sink.write([gathered(2, {"n": 2})])
    sink.write([gathered(2, {"n": 2})])
    assert [row["request_id"] for row in read_queue(context.broker)] == ["2"]


@pytest.mark.services
def test_consumers_of_a_queue_are_told_that_it_is_json(tmp_path: Path, rabbit_vhost: str) -> None:
    with closing(connect(rabbit_vhost, name="test", timeout=10.0)) as broker:
        sink = opened(SinkContext("", tmp_path, broker, "box", lambda: NOW), DestinationKind.QUEUE)
        assert sink.write([gathered(1, {"n": 1})]) == {}
    with closing(pika.BlockingConnection(pika.URLParameters(rabbit_vhost))) as connection:
        channel = connection.channel()
        _method, properties, body = channel.basic_get("records.p7.news", auto_ack=True)
        channel.queue_delete("records.p7.news")
    assert properties.content_type == "application/json"
    assert json.loads(body)["request_id"] == "1"


# --- the table ------------------------------------------------------------------------------------


def test_each_field_has_a_column_of_its_kind(context: SinkContext) -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    with closing(opened(context)) as sink:
        sink.write([gathered(1, {"n": 1, "x": 1.5, "ok": True, "s": "a", "at": at, "l": [1]})])
        # Another process adds a column meanwhile.
        with closing(opened(context)) as other:
            other.write([gathered(2, {"late": 7, "none": None})])
        sink.write([gathered(3, {"late": 8, "n": 2})])

    database = open_database(context.records_url)
    kinds = database.columns("records_p7_news")
    database.close()
    assert kinds == {
        "request_id": ColumnType.INTEGER,
        "position": ColumnType.INTEGER,
        "at": ColumnType.TIME,
        "url": ColumnType.TEXT,
        "rule": ColumnType.TEXT,
        "meta": ColumnType.JSON,
        "extra": ColumnType.JSON,
        "n": ColumnType.INTEGER,
        "x": ColumnType.NUMBER,
        "ok": ColumnType.BOOLEAN,
        "s": ColumnType.TEXT,
        "at_": ColumnType.TIME,
        "l": ColumnType.JSON,
        "late": ColumnType.INTEGER,
    }
    rows = read_table(context.records_url)
    assert [(row["n"], row["late"]) for row in rows] == [(1, None), (None, 7), (2, 8)]
    assert rows[0]["extra"] is None


def test_what_does_not_fit_its_column_is_kept_beside(context: SinkContext) -> None:
    with closing(opened(context)) as sink:
        sink.write([gathered(1, {"price": 3, "long": "x"})])
        odd = {"price": "cheap", "Price": 4, "x" * 80: 1, "long": 5, "big": 2**70, "%s": 6}
        assert sink.write([gathered(2, odd)]) == {}

    row = read_table(context.records_url)[1]
    extra = row["extra"] if isinstance(row["extra"], dict) else json.loads(row["extra"])
    assert extra == {"price": "cheap", "Price": 4, "x" * 80: 1, "big": 2**70, "%s": 6}
    assert (row["price"], row["long"]) == (None, "5")


def test_a_request_with_fewer_records_than_before_leaves_none_behind(context: SinkContext) -> None:
    with closing(opened(context)) as sink:
        sink.write([gathered(1, {"title": "a"}, {"title": "b"})])
        sink.write([gathered(1, {"title": "new"}, again=True)])
        sink.write([gathered(2, {"title": "c"}), gathered(2, {"title": "d"})])

    assert [row["title"] for row in read_table(context.records_url)] == ["new", "d"]
    with closing(opened(context)) as sink:
        sink.write([gathered(1, again=True)])
    assert [row["request_id"] for row in read_table(context.records_url)] == [2]


def test_a_table_that_somebody_dropped_is_made_again(context: SinkContext) -> None:
    sink = opened(context)
    sink.write([gathered(1, {"title": "a"})])
    if context.records_url.startswith("sqlite"):
        with closing(sqlite3.connect(context.records_url.removeprefix("sqlite:///"))) as file:
            file.execute('DROP TABLE "records_p7_news"')
    else:
        with psycopg.connect(context.records_url, autocommit=True) as server:
            server.execute('DROP TABLE "records_p7_news"')
    assert sink.write([gathered(2, {"title": "b"})]) == {}
    sink.close()
    assert [row["title"] for row in read_table(context.records_url)] == ["b"]


class _Picky:
    """A database that refuses one request."""

    def __init__(self, database: RecordsDatabase) -> None:
        self._database = database

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    def replace(self, table: str, columns: Any, key: Any, rows: Any, **options: Any) -> None:
        # A number that no column holds, as the real one would get it from a foreign table.
        bad = [[2**70, *row[1:]] if row[0] == 2 else row for row in rows]
        self._database.replace(table, columns, key, bad, **options)


def test_one_that_is_refused_does_not_hold_up_the_others(context: SinkContext) -> None:
    sink = TableSink(_Picky(open_database(context.records_url)), "records_p7_news")
    refused = sink.write([gathered(number, {"title": str(number)}) for number in (1, 2, 3)])
    sink.close()
    assert list(refused) == [2]
    assert refused[2]
    assert [row["title"] for row in read_table(context.records_url)] == ["1", "3"]


def test_a_database_that_cannot_be_reached_says_so(tmp_path: Path, broker: Broker) -> None:
    (tmp_path / "file").write_text("")
    for url in (f"sqlite:///{tmp_path}/file/x.sqlite3", "postgresql://127.0.0.1:1/none"):
        sink = open_sink(
            SinkContext(url, tmp_path, broker, "box", lambda: NOW),
            project_id=7,
            biz="news",
            records=Records(),
        )
        with pytest.raises(SinkUnavailable, match="records: "):
            sink.write([gathered(1, {"n": 1})])


def test_names_that_no_table_can_have_are_refused() -> None:
    with pytest.raises(BadSetting, match="RECORDS_URL"):
        open_database("mysql://host/name")
    with pytest.raises(BadSetting, match="no name"):
        table_of(7, "news", Records(name="a b"))
    with pytest.raises(BadSetting, match="63"):
        table_of(7, "news", Records(name="a" * 60))


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (True, ColumnType.BOOLEAN),
        (1, ColumnType.INTEGER),
        (1.0, ColumnType.NUMBER),
        ("a", ColumnType.TEXT),
        ({}, ColumnType.JSON),
    ],
)
def test_the_kind_of_a_column_is_that_of_its_first_value(value: Any, kind: ColumnType) -> None:
    assert kind_of(value) is kind
    assert fit(value, kind) is not None


def test_columns_of_fields() -> None:
    assert [column_of(name) for name in ("price", "url", "URL", "", "a\nb", "%")] == [
        "price",
        "url_",
        "URL_",
        None,
        None,
        None,
    ]
