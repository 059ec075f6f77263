"""Items become Parquet files: nothing is lost in ``_item``, and columns follow their rules."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from yardkit.items import columns as names
from yardkit.items.batches import ReadItem, encode_line, pack, read_batch
from yardkit.items.columns import MAX_COLUMNS, Columns, ColumnType, type_of
from yardkit.items.segments import FieldStatistics, ItemRows, build, write
from yardkit.names import UNSTORABLE
from yardkit.protocol import ItemBatch

AT = datetime(2026, 3, 1, 23, 59, 59, 250_000, tzinfo=UTC)

_scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
_values = st.recursive(
    _scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)
_names = st.sampled_from(["a", "A", "a.b", "a__string", "_item", "_Run", "url", ""]) | st.text()
_items = st.lists(st.dictionaries(_names, _values, max_size=6), min_size=1, max_size=8)


def batch_of(items: Sequence[dict[str, Any]], url: str = "") -> ItemBatch:
    packed, size = pack([encode_line(url, item) for item in items])
    return ItemBatch(
        producer="run:1",
        boot="b1",
        first=1,
        count=len(items),
        lines=packed,
        raw_bytes=size,
        at=AT.timestamp(),
    )


def written(items: Sequence[ReadItem], columns: Columns) -> tuple[list[dict[str, Any]], Any]:
    """The rows of these items in a Parquet file, and the statistics of their fields."""
    rows = ItemRows(7)
    flags: list[str | None] = [None] * len(items)
    seqs = range(1, len(items) + 1)
    rows.add(incarnation="b1", seqs=seqs, at=AT.timestamp(), items=items, flags=flags)
    table, statistics = build(rows, columns)
    return pq.read_table(io.BytesIO(write(table))).to_pylist(), statistics


def expected(value: Any, kind: ColumnType) -> Any:
    """What a column of this type holds of a value."""
    if kind is ColumnType.STRING:
        return str(value)
    if kind is ColumnType.JSON:
        return msgspec.json.encode(value).decode()
    return float(value) if kind is ColumnType.DOUBLE else value


@pytest.mark.slow("made-up items, each written to a file")
@settings(deadline=None)
@given(batches=st.lists(_items, min_size=1, max_size=3))
@example(batches=[[{"a": 2**63}], [{"a": 1}], [{"a": 1.5}], [{"a": "x"}]])
@example(batches=[[{"a": 0.5}], [{"a": 2**63 - 1}], [{"a": -(2**63)}]])
@example(batches=[[{"a": 1}, {"a": 2.5}, {"a": 10**400}]])
@pytest.mark.covers("DS.1", "DS.4")
def test_every_item_is_kept_and_every_value_stands_in_the_column_of_its_type(
    batches: list[list[dict[str, Any]]],
) -> None:
    columns = Columns()
    for items in batches:
        rows, statistics = written(read_batch(batch_of(items)), columns)
        # As stored by the platform: the columns of the next batch begin with these.
        columns = Columns(json.loads(json.dumps(columns.stored())))
        assert [json.loads(row[names.ITEM]) for row in rows] == items
        for item, row in zip(items, rows, strict=True):
            for field, value in item.items():
                filled = {
                    column.column: row[column.column]
                    for column in columns.of_field(field)
                    if row.get(column.column) is not None
                }
                if value is None or not columns.of_field(field):
                    assert not filled
                    continue
                (column,) = (c for c in columns.of_field(field) if c.column in filled)
                kind = type_of(value)
                fits = kind is ColumnType.LONG and column.type is ColumnType.DOUBLE
                assert column.type is kind or fits
                assert filled[column.column] == expected(value, column.type)
        for field, found in statistics.items():
            present = [item[field] for item in items if item.get(field) is not None]
            assert found.count == len(present) == sum(found.types.values())
            json.dumps(msgspec.to_builtins(found), allow_nan=False)
            assert not UNSTORABLE.search(f"{found.low}{found.high}")
    folded = [column.column.casefold() for column in columns]
    assert len({*folded, *names.SYSTEM}) == len(folded) + len(names.SYSTEM)


def test_system_columns() -> None:
    items = read_batch(batch_of([{"a": 1}, {"a": 2}], url="https://shop.example/"))
    rows, _statistics = written(items, Columns())
    assert rows[1] == {
        "_run": 7,
        "_day": date(2026, 3, 1),
        "_incarnation": "b1",
        "_seq": 2,
        "_at": AT,
        "_url": "https://shop.example/",
        "_flags": None,
        "_item": '{"a":2}',
        "a": 2,
    }


@pytest.mark.covers("DS.4")
def test_values_of_another_type_have_a_column_of_their_own() -> None:
    columns = Columns()
    items = [{"price": 1.5}, {"price": 2}, {"price": "none"}, {"price": [1]}, {"price": None}, {}]
    rows, statistics = written(read_batch(batch_of(items)), columns)
    assert [column.column for column in columns] == ["price", "price__string", "price__json"]
    assert [row["price"] for row in rows] == [1.5, 2.0, None, None, None, None]
    assert [row["price__string"] for row in rows] == [None, None, "none", None, None, None]
    assert rows[3]["price__json"] == "[1]"
    assert statistics["price"].types == {"double": 1, "long": 1, "string": 1, "json": 1}
    assert (statistics["price"].count, statistics["price"].low) == (4, None)


def test_whole_numbers_beyond_64_bit_are_strings_at_once() -> None:
    columns = Columns()
    rows, _statistics = written(read_batch(batch_of([{"n": 2**63}])), columns)
    assert [(column.column, column.type) for column in columns] == [("n", "string")]
    assert rows[0]["n"] == str(2**63)


def test_names_that_differ_by_case_or_collide_get_numbers() -> None:
    columns = Columns()
    item = {"Price": 1, "price": 2, "PRICE": 3, "a.b": 4, "a_b": 5, "_URL": 6, "": 7, "\x00": 8}
    rows, _statistics = written(read_batch(batch_of([item])), columns)
    assert {column.field: column.column for column in columns} == {
        "Price": "Price",
        "price": "price_2",
        "PRICE": "PRICE_3",
        "a.b": "a_b",
        "a_b": "a_b_2",
    }
    assert (rows[0]["PRICE_3"], rows[0]["a_b"], rows[0]["a_b_2"]) == (3, 4, 5)


def test_fields_beyond_the_limit_are_in_the_item_only() -> None:
    columns = Columns()
    # Keys that are data: each item has others.
    items = [{f"k{number}-{part}": number for part in range(50)} for number in range(100)]
    rows, statistics = written(read_batch(batch_of(items)), columns)
    assert len(list(columns)) == len(statistics) == MAX_COLUMNS
    assert [json.loads(row["_item"]) for row in rows] == items


def test_nul_is_kept_and_not_shown_in_statistics() -> None:
    rows, statistics = written(read_batch(batch_of([{"b": "\0"}])), Columns())
    assert rows[0]["_item"] == r'{"b":"\u0000"}'
    assert rows[0]["b"] == "\0"
    assert statistics["b"].low == "?"


def test_statistics_of_batches_are_merged() -> None:
    numbers = FieldStatistics(count=2, types={"long": 2}, low=1.0, high=5.0, total=6.0)
    more = FieldStatistics(count=1, types={"double": 1}, low=0.5, high=0.5, total=0.5)
    both = numbers.merged(more)
    assert (both.count, both.low, both.high, both.total) == (3, 0.5, 5.0, 6.5)
    assert FieldStatistics().merged(numbers) == numbers == numbers.merged(FieldStatistics())
    texts = FieldStatistics(count=1, types={"string": 1}, low="a", high="a")
    mixed = both.merged(texts)
    assert (mixed.low, mixed.high, mixed.total) == (None, None, 6.5)
    assert mixed.merged(numbers).low is None


def test_statistics_of_huge_numbers_stay_finite() -> None:
    items = [{"n": 1.7e308}, {"n": 1.7e308}, {"n": -1.0}]
    _rows, statistics = written(read_batch(batch_of(items)), Columns())
    found = statistics["n"]
    total = found.merged(found).total
    assert math.isfinite(total)
