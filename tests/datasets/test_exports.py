"""Exports of made-up items: complete, and nothing in them becomes a formula."""

from __future__ import annotations

import csv
import html
import io
import json
import math
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from apps.datasets.engine import exports
from apps.datasets.engine.errors import BadItemQuery
from apps.datasets.engine.exports import FORMATS, check_rows
from apps.datasets.engine.item_types import File, ItemQuery
from apps.datasets.engine.reader import ItemReader
from yardkit.items.batches import ReadItem
from yardkit.items.columns import Columns
from yardkit.items.segments import ItemRows, build, write
from yardkit.objects.folder import FolderStore

AT = datetime(2026, 3, 1, tzinfo=UTC).timestamp()
# What a spreadsheet takes for a formula, also in full width, or hides.
DANGER = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
ALL = ItemQuery()
_hostile = (
    st.sampled_from(
        [
            "=1+1",
            "+cmd|' /C calc'!A0",
            "@SUM(A1)",
            "-1+1",
            "-12.5",
            "\t=1",
            "\r\n=1",
            "a\x00b",
            "\x1b[",
        ]
    )
    | st.text()
)
_values = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | _hostile
_items = st.lists(
    st.dictionaries(st.sampled_from(["a", "b", "=c", "@d"]), _values), min_size=1, max_size=6
)


KEY = "datasets/p1/d1/segments/one.parquet"


@contextmanager
def reading(items: Sequence[dict[str, Any]]) -> Iterator[ItemReader]:
    """A reader of these items in one segment."""
    columns, rows = Columns(), ItemRows(7)
    rows.add(
        incarnation="b1",
        seqs=range(1, len(items) + 1),
        at=AT,
        items=[ReadItem(url="", data=item, raw=json.dumps(item).encode()) for item in items],
        flags=[None] * len(items),
    )
    table, _statistics = build(rows, columns)
    with tempfile.TemporaryDirectory() as folder:
        store = FolderStore(Path(folder))
        store.put(KEY, write(table))
        with ItemReader(store, [File(KEY, 7, len(items), 1, 1, 1)], columns) as reader:
            yield reader


def exported(reader: ItemReader, form: str, fields: Sequence[str] = ()) -> bytes:
    return b"".join(FORMATS[form](reader, ALL, fields))


def is_harmless(cell: str) -> bool:
    return not cell.startswith(DANGER) or bool(re.fullmatch(r"-[0-9]+(\.[0-9]+)?(e[+-]\d+)?", cell))


def cells_of(book: bytes) -> list[str]:
    """Every text of a workbook; fails on a formula."""
    with ZipFile(io.BytesIO(book)) as archive:
        sheet = archive.read("xl/worksheets/sheet1.xml").decode()
    assert "<f>" not in sheet
    return [html.unescape(text) for text in re.findall(r"<t[^>]*>(.*?)</t>", sheet, re.DOTALL)]


@pytest.mark.slow("4 s")
@pytest.mark.covers("DS.6")
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(_items)
@example([{"=c": "=1+1", "a": "-5"}])
def test_no_cell_becomes_a_formula(items: list[dict[str, Any]]) -> None:
    with reading(items) as reader:
        if not reader.fields:
            return
        rows = list(csv.reader(io.StringIO(exported(reader, "csv").decode(), newline="")))
        assert len(rows) == len(items) + 1
        for row in rows:
            assert len(row) == len(reader.fields)
            assert all(map(is_harmless, row)), row
            assert not any(CONTROL.search(cell) for cell in row)
        for cell in cells_of(exported(reader, "xlsx")):
            assert is_harmless(cell), cell


@pytest.mark.slow("4 s")
@pytest.mark.covers("DS.6")
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(_items)
def test_json_has_the_items_as_they_came(items: list[dict[str, Any]]) -> None:
    with reading(items) as reader:
        lines = exported(reader, "jsonl").splitlines()
        assert [json.loads(line) for line in lines] == items
        assert json.loads(exported(reader, "json")) == items
        if "a" in reader.fields:
            chosen = [json.loads(line) for line in exported(reader, "jsonl", ["a"]).splitlines()]
            assert chosen == [{"a": item["a"]} if "a" in item else {} for item in items]


@pytest.mark.covers("DS.6")
def test_numbers_stay_numbers() -> None:
    items = [{"price": -1.5, "stock": -3, "text": "-7", "ok": True}, {"price": 2, "stock": 4}]
    with reading(items) as reader:
        table = exported(reader, "csv").decode().splitlines()
        assert table[1:] == ['-1.5,-3,"-7",true', "2,4,,"]
        read = pq.read_table(io.BytesIO(exported(reader, "parquet"))).to_pylist()
        assert [row["price"] for row in read] == [-1.5, 2.0]
        assert math.isclose(sum(row["stock"] for row in read), 1)


@pytest.mark.covers("DS.6")
def test_a_workbook_that_would_be_too_long_names_the_other_formats(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exports, "XLSX_ROWS", 3)
    with reading([{"a": 1}] * 2) as reader:
        check_rows(reader, ALL, "xlsx")
    with reading([{"a": 1}] * 3) as reader:
        with pytest.raises(BadItemQuery, match="csv, jsonl or parquet"):
            check_rows(reader, ALL, "xlsx")
        check_rows(reader, ALL, "csv")
