"""Items as JSON, JSON lines, CSV, XLSX and Parquet; streamed in flat memory.

CSV and XLSX are for spreadsheets: a text that begins like a formula gets an apostrophe before it.
"""

from __future__ import annotations

import io
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from apps.datasets.engine.errors import BadItemQuery, gettext_noop
from apps.datasets.engine.item_types import ItemQuery
from apps.datasets.engine.reader import ItemReader
from yardkit.items import columns as names
from yardkit.items.segments import COMPRESSION

if TYPE_CHECKING:
    import pyarrow as pa

# Rows of one worksheet, its head included.
XLSX_ROWS: Final = 1_048_576
XLSX_CHARACTERS: Final = 32_767
# What spreadsheets calculate, also in full width; a negative number is none.
_FORMULA: Final = "^[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]"
_NEGATIVE: Final = r"^-[0-9]+(\.[0-9]+)?$"
_CONTROL: Final = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
_UNSAFE: Final = f"{_FORMULA}|{_CONTROL}"
_CHUNK_BYTES: Final = 1024 * 1024


def json_lines(reader: ItemReader, query: ItemQuery, fields: Sequence[str]) -> Iterator[bytes]:
    """Yield one item a line; without ``fields`` as it came."""
    for texts in _objects(reader, query, fields):
        yield "\n".join(texts).encode() + b"\n"


def json_array(reader: ItemReader, query: ItemQuery, fields: Sequence[str]) -> Iterator[bytes]:
    """Yield one array of all items."""
    yield b"["
    begun = False
    for texts in _objects(reader, query, fields):
        yield (b",\n" if begun else b"\n") + ",\n".join(texts).encode()
        begun = True
    yield b"\n]\n"


def csv(reader: ItemReader, query: ItemQuery, fields: Sequence[str]) -> Iterator[bytes]:
    """Yield a head and one line for each item."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    chosen = _chosen(reader, fields)
    names = [_cell(name) for name in chosen]
    head = pa.table([pa.array([], pa.string())] * len(names), names=names)
    yield _csv_bytes(arrow_csv, head, with_head=True)
    for batch in reader.batches(query, fields=chosen):
        yield _csv_bytes(arrow_csv, _harmless(batch), with_head=False)


def parquet(reader: ItemReader, query: ItemQuery, fields: Sequence[str]) -> Iterator[bytes]:
    """Yield a Parquet file; it is made on the disk first, since its end says where all is."""
    import pyarrow.parquet as pq

    chosen = _chosen(reader, fields)
    with tempfile.TemporaryDirectory(prefix="crawlyard-export-") as folder:
        path = Path(folder) / "items.parquet"
        writer: Any = None
        for batch in reader.batches(query, fields=chosen, rows=100_000):
            if writer is None:
                writer = pq.ParquetWriter(path, batch.schema, compression=COMPRESSION)
            writer.write_batch(batch)
        if writer is None:
            pq.write_table(_empty(chosen), path)
        else:
            writer.close()
        yield from _file(path)


def xlsx(reader: ItemReader, query: ItemQuery, fields: Sequence[str]) -> Iterator[bytes]:
    """Yield a workbook. Raises ``BadItemQuery`` beyond the rows of a worksheet."""
    import xlsxwriter

    chosen = _chosen(reader, fields)
    with tempfile.TemporaryDirectory(prefix="crawlyard-export-") as folder:
        path = Path(folder) / "items.xlsx"
        options = {
            "constant_memory": True,
            "strings_to_formulas": False,
            "strings_to_urls": False,
            "tmpdir": folder,
        }
        with xlsxwriter.Workbook(path, options) as book:
            sheet = book.add_worksheet("items")
            sheet.write_row(0, 0, [_cell(name) for name in chosen])
            row = 0
            for batch in reader.batches(query, fields=chosen):
                for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    row += 1
                    for place, value in enumerate(values):
                        _write(sheet, row, place, value)
        yield from _file(path)


def check_rows(reader: ItemReader, query: ItemQuery, export: str) -> None:
    """Raise ``BadItemQuery`` if a format cannot hold the items of a query."""
    if export == "xlsx" and reader.count(query) >= XLSX_ROWS:
        raise BadItemQuery(
            gettext_noop(
                "xlsx holds %(most)s items. Filter them, or choose csv, jsonl or parquet."
            ),
            most=f"{XLSX_ROWS - 1:,}",
        )


FORMATS: Final[Mapping[str, Callable[..., Iterator[bytes]]]] = {
    "json": json_array,
    "jsonl": json_lines,
    "csv": csv,
    "xlsx": xlsx,
    "parquet": parquet,
}
CONTENT_TYPES: Final[Mapping[str, str]] = {
    "json": "application/json",
    "jsonl": "application/x-ndjson",
    "csv": "text/csv; charset=utf-8",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "parquet": "application/vnd.apache.parquet",
}


def _objects(reader: ItemReader, query: ItemQuery, fields: Sequence[str]) -> Iterator[list[str]]:
    if not fields:
        for batch in reader.batches(query):
            yield batch.column(0).to_pylist()
        return
    import msgspec

    encoder = msgspec.json.Encoder()
    for item_batch in reader.batches(query):
        found = [msgspec.json.decode(text) for text in item_batch.column(0).to_pylist()]
        yield [
            encoder.encode({name: item[name] for name in fields if name in item}).decode()
            for item in found
        ]


def _chosen(reader: ItemReader, fields: Sequence[str]) -> list[str]:
    # A file needs a column, also before the first item.
    return list(fields) or reader.fields or [names.URL]


def _empty(fields: Sequence[str]) -> pa.Table:
    import pyarrow as pa

    return pa.table({name: pa.array([], pa.string()) for name in fields})


def _harmless(batch: pa.RecordBatch) -> pa.Table:
    """Return a table whose texts cannot become formulas."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = []
    for column in batch.columns:
        is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        # One look at each text; few columns have any of it.
        if is_text and pc.any(pc.match_substring_regex(column, _UNSAFE)).as_py():
            column = _marked(pc, column)
        if batch.num_columns == 1 and column.null_count:
            # An empty line would be skipped by most readers; a quoted empty text is not.
            column = pc.fill_null(column.cast(pa.string()), "")
        columns.append(column)
    return pa.table(columns, names=batch.schema.names)


def _marked(pc: Any, column: Any) -> Any:
    """Return texts without control characters, formulas with an apostrophe before them."""
    column = pc.replace_substring_regex(column, _CONTROL, "")
    dangerous = pc.and_not(
        pc.match_substring_regex(column, _FORMULA), pc.match_substring_regex(column, _NEGATIVE)
    )
    marked = pc.binary_join_element_wise("'", column, "")
    return pc.if_else(pc.fill_null(dangerous, False), marked, column)


def _csv_bytes(arrow_csv: Any, table: pa.Table, *, with_head: bool) -> bytes:
    text = io.BytesIO()
    options = arrow_csv.WriteOptions(include_header=with_head)
    arrow_csv.write_csv(table, text, options)
    return text.getvalue()


def _write(sheet: Any, row: int, place: int, value: Any) -> None:
    if value is None:
        return
    if isinstance(value, bool):
        sheet.write_boolean(row, place, value)
    elif isinstance(value, int | float) and abs(value) < 1e15:
        sheet.write_number(row, place, value)
    else:
        sheet.write_string(row, place, _cell(str(value)))


def _cell(text: str) -> str:
    return harmless(text[:XLSX_CHARACTERS])[:XLSX_CHARACTERS]


def harmless(text: str) -> str:
    """Return a text without control characters, a formula with an apostrophe before it."""
    text = re.sub(_CONTROL, "", text)
    is_formula = re.match(_FORMULA, text) and not re.match(_NEGATIVE, text)
    return f"'{text}" if is_formula else text


def _file(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk
