"""Tables of deliveries, on SQLite and PostgreSQL: each item once, a column for each field."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

from apps.datasets.engine.item_types import Item
from apps.datasets.engine.targets.base import BadTarget, Chunk, TargetUnavailable
from apps.datasets.engine.targets.databases import ColumnType, TableDatabase, open_database
from apps.datasets.engine.targets.table import (
    ItemLayout,
    RecordLayout,
    TableLayout,
    TableTarget,
    column_of,
    fit,
    kind_of,
)

AT = datetime(2026, 9, 21, 14, 13, 20, tzinfo=UTC)
TABLE = "records_p7_news"
POSTGRES = pytest.param("postgresql", marks=pytest.mark.services)
Rows = list[dict[str, Any]]


def item_of(seq: int, data: dict[str, Any], run: int = 7, boot: str = "b1") -> Item:
    return Item(run, boot, seq, AT, "http://a.example/", "", 1, msgspec.json.encode(data).decode())


def record_of(request: int, position: int, data: dict[str, Any]) -> Item:
    return item_of(position + 1, {**data, "_rule": "article"}, run=0, boot=f"r{request}")


def chunk_of(*items: Item) -> Chunk:
    return Chunk("news", 1, 0, items)


@pytest.fixture(params=["sqlite", POSTGRES])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a database of the test's own."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'records.sqlite3'}"
    return str(request.getfixturevalue("empty_database"))


def opened(url: str, layout: TableLayout | None = None) -> TableTarget:
    return TableTarget(open_database(url), TABLE, layout or ItemLayout())


def read_table(url: str, order: str = "_id") -> Rows:
    query = f'SELECT * FROM "{TABLE}" ORDER BY {order}'  # noqa: S608 - a test's own
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
            file.row_factory = sqlite3.Row
            return [dict(row) for row in file.execute(query)]
    with psycopg.connect(url, row_factory=psycopg.rows.dict_row) as server:
        return server.execute(query).fetchall()


@pytest.mark.covers("DS.10")
def test_an_item_that_comes_again_replaces_itself(url: str) -> None:
    with closing(opened(url)) as target:
        chunk = chunk_of(*(item_of(seq, {"title": f"t{seq}"}) for seq in (1, 2, 3)))
        assert target.write(chunk) == {}
        assert target.write(chunk) == {}
    assert [(row["_id"], row["title"]) for row in read_table(url)] == [
        (f"7-b1-{seq}", f"t{seq}") for seq in (1, 2, 3)
    ]


@pytest.mark.covers("DS.10")
def test_by_key_the_last_one_stays(url: str) -> None:
    with closing(opened(url, ItemLayout(["sku"]))) as target:
        refused = target.write(
            chunk_of(
                item_of(1, {"sku": "a", "price": 1}),
                item_of(2, {"price": 9}),
                item_of(3, {"sku": "b", "price": 2}),
                item_of(4, {"sku": "a", "price": 3}),
            )
        )
        assert refused == {1: "the key field sku has no value"}
    assert [(row["sku"], row["price"]) for row in read_table(url)] == [("a", 3), ("b", 2)]


@pytest.mark.covers("DS.3")
def test_records_of_requests_have_the_columns_of_earlier_versions(url: str) -> None:
    with closing(opened(url, RecordLayout())) as target:
        items = [record_of(5, 0, {"title": "a", "_meta": {"k": 1}}), record_of(5, 1, {"n": 2})]
        assert target.write(chunk_of(*items)) == {}
    first, second = read_table(url, "request_id, position")
    assert (first["request_id"], first["position"], first["rule"]) == (5, 0, "article")
    assert (first["title"], second["n"]) == ("a", 2)
    meta = first["meta"] if isinstance(first["meta"], dict) else json.loads(first["meta"])
    assert meta == {"k": 1}
    assert "_rule" not in first


def test_strange_texts_are_kept_as_far_as_they_can_be(url: str) -> None:
    with closing(opened(url)) as target:
        data = {"title": "nul\0 中文", "more": {"k\0": ["\0"]}}
        assert target.write(chunk_of(item_of(1, data))) == {}
    assert read_table(url)[0]["title"] == "nul 中文"


def test_each_field_has_a_column_of_its_kind(url: str) -> None:
    with closing(opened(url)) as target:
        target.write(chunk_of(item_of(1, {"n": 1, "x": 1.5, "ok": True, "s": "a", "l": [1]})))
        # Another process adds a column meanwhile.
        with closing(opened(url)) as other:
            other.write(chunk_of(item_of(2, {"late": 7, "none": None, "_url": "own"})))
        target.write(chunk_of(item_of(3, {"late": 8, "n": 2})))

    database = open_database(url)
    kinds = database.columns(TABLE)
    database.close()
    assert kinds == {
        "_id": ColumnType.TEXT,
        "_run": ColumnType.INTEGER,
        "_at": ColumnType.TIME,
        "_url": ColumnType.TEXT,
        "extra": ColumnType.JSON,
        "n": ColumnType.INTEGER,
        "x": ColumnType.NUMBER,
        "ok": ColumnType.BOOLEAN,
        "s": ColumnType.TEXT,
        "l": ColumnType.JSON,
        "late": ColumnType.INTEGER,
        "_url_": ColumnType.TEXT,
    }
    rows = read_table(url)
    assert [(row["n"], row["late"]) for row in rows] == [(1, None), (None, 7), (2, 8)]
    assert rows[0]["extra"] is None


def test_what_does_not_fit_its_column_is_kept_beside(url: str) -> None:
    with closing(opened(url)) as target:
        target.write(chunk_of(item_of(1, {"price": 3, "long": "x"})))
        odd = {"price": "cheap", "Price": 4, "x" * 80: 1, "long": 5, "big": 2**70, "%s": 6}
        assert target.write(chunk_of(item_of(2, odd))) == {}

    row = read_table(url)[1]
    extra = row["extra"] if isinstance(row["extra"], dict) else json.loads(row["extra"])
    assert extra == {"price": "cheap", "Price": 4, "x" * 80: 1, "big": 2**70, "%s": 6}
    assert (row["price"], row["long"]) == (None, "5")


def test_a_table_that_somebody_dropped_is_made_again(url: str) -> None:
    target = opened(url)
    target.write(chunk_of(item_of(1, {"title": "a"})))
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
            file.execute(f'DROP TABLE "{TABLE}"')
    else:
        with psycopg.connect(url, autocommit=True) as server:
            server.execute(f'DROP TABLE "{TABLE}"')
    assert target.write(chunk_of(item_of(2, {"title": "b"}))) == {}
    target.close()
    assert [row["title"] for row in read_table(url)] == ["b"]


class _Picky:
    """A database that refuses one item."""

    def __init__(self, database: TableDatabase) -> None:
        self._database = database

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    def replace(self, table: str, columns: Any, key: Any, rows: Any, **options: Any) -> None:
        # A number that no column holds, as the real one would get it from a foreign table.
        place = list(columns).index("_run")
        bad = [
            [*row[:place], 2**70, *row[place + 1 :]] if row[0] == "7-b1-2" else row for row in rows
        ]
        self._database.replace(table, columns, key, bad, **options)


def test_one_that_is_refused_does_not_hold_up_the_others(url: str) -> None:
    target = TableTarget(_Picky(open_database(url)), TABLE, ItemLayout())
    refused = target.write(chunk_of(*(item_of(seq, {"title": str(seq)}) for seq in (1, 2, 3))))
    target.close()
    assert list(refused) == [1]
    assert refused[1]
    assert [row["title"] for row in read_table(url)] == ["1", "3"]


def test_a_database_that_cannot_be_reached_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for url in (f"sqlite:///{tmp_path}/file/x.sqlite3", "postgresql://127.0.0.1:1/none"):
        with closing(opened(url)) as target, pytest.raises(TargetUnavailable):
            target.write(chunk_of(item_of(1, {"n": 1})))


def test_other_databases_are_refused() -> None:
    with pytest.raises(BadTarget, match="sqlite"):
        open_database("mysql://host/name")


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
    fixed = RecordLayout.fixed
    assert [column_of(name, fixed) for name in ("price", "url", "URL", "", "a\nb", "%")] == [
        "price",
        "url_",
        "URL_",
        None,
        None,
        None,
    ]
