"""Merges Parquet files of one run into fewer, larger ones; in flat memory."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from yardkit.items import columns as names
from yardkit.items.columns import Column
from yardkit.items.segments import COMPRESSION, ROW_GROUP_ROWS, arrow_type, system_type
from yardkit.objects import ObjectStore

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

TARGET_BYTES: Final = 128 * 1024 * 1024
# Better than that of segments: these files stay. A higher one takes twice the time for a tenth.
COMPRESSION_LEVEL: Final = 8
# Larger pages have more to repeat.
_PAGE_BYTES: Final = 4 * 1024 * 1024
# A column with more different values among the first rows is stored without a dictionary.
_SAMPLE_ROWS: Final = 10_000
_MOST_DISTINCT: Final = 0.5
_BATCH_ROWS: Final = 20_000
# Uncompressed, of one batch that is read, and of the rows that wait for their row group.
_BATCH_BYTES: Final = 16 * 1024 * 1024
_GROUP_BYTES: Final = 64 * 1024 * 1024
_CHUNK_BYTES: Final = 1024 * 1024


class Input(msgspec.Struct, frozen=True):
    """A file to merge. ``batch``: number of a segment's batch; None: the file has the column."""

    key: str
    batch: int | None


class Output(msgspec.Struct, frozen=True):
    """A file that was written: one day, ordered by batch. ``raw_bytes``: of ``_item``."""

    key: str
    day: date
    items: int
    bytes: int
    raw_bytes: int
    first_batch: int
    last_batch: int


def merge(
    store: ObjectStore,
    inputs: Sequence[Input],
    columns: Sequence[Column],
    key_of: Callable[[int], str],
    *,
    target_bytes: int = TARGET_BYTES,
    check: Callable[[], object] = lambda: None,
) -> list[Output]:
    """Write the items of all inputs, in their order, into new objects; return them.

    ``key_of`` returns the key of the file with a number; ``check`` is called again and again, and
    stops the merge by raising.
    """
    with tempfile.TemporaryDirectory(prefix="crawlyard-merge-") as folder, ExitStack() as stack:
        merger = _Merger(store, columns, key_of, Path(folder), target_bytes)
        stack.callback(merger.abandon)
        for source in inputs:
            for batch in _batches(store, source, Path(folder)):
                check()
                merger.add(batch)
        return merger.finish()


def schema_of(columns: Sequence[Column]) -> pa.Schema:
    """Return the schema of a table's files."""
    import pyarrow as pa

    return pa.schema(
        [pa.field(name, system_type(name)) for name in names.SYSTEM]
        + [pa.field(column.column, arrow_type(column.type)) for column in columns]
    )


def _batches(store: ObjectStore, source: Input, folder: Path) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = store.local_path(source.key)
    if path is None:
        path = folder / "input.parquet"
        with path.open("wb") as file:
            for chunk in store.stream(source.key):
                file.write(chunk)
    elif not path.exists():
        # Raises what a reader of any store expects.
        store.head(source.key)
    with pq.ParquetFile(path) as opened:
        for batch in opened.iter_batches(_batch_rows(opened.metadata)):
            if source.batch is not None:
                number = pa.array([source.batch] * len(batch), pa.int64())
                batch = batch.append_column(names.BATCH, number)
            yield batch


def _batch_rows(metadata: Any) -> int:
    """Return how many rows are read at once: fewer if they are large."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    size = sum(group.total_byte_size for group in groups)
    found: int = max(1, min(_BATCH_ROWS, _BATCH_BYTES * metadata.num_rows // max(1, size)))
    return found


class _Writer:
    """One file that is being written: items of one day."""

    def __init__(self, path: Path, day: date, columns: Sequence[Column]) -> None:
        self.path = path
        self.day = day
        self.items = self.raw_bytes = 0
        self.first_batch = self.last_batch = 0
        self._pending: list[Any] = []
        self._pending_rows = self._pending_bytes = 0
        self._schema = schema_of(columns)
        self._file: pq.ParquetWriter | None = None

    def add(self, table: pa.Table) -> None:
        import pyarrow.compute as pc

        batches = table.column(names.BATCH)
        if not self.items:
            self.first_batch = batches[0].as_py()
        self.last_batch = batches[len(batches) - 1].as_py()
        self.items += len(table)
        self.raw_bytes += pc.sum(pc.binary_length(table.column(names.ITEM))).as_py() or 0
        self._pending.append(table)
        self._pending_rows += len(table)
        self._pending_bytes += table.nbytes
        if self._pending_rows >= ROW_GROUP_ROWS or self._pending_bytes >= _GROUP_BYTES:
            self._flush()

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self._file is not None else 0

    def close(self) -> None:
        self._flush()
        self.abandon()

    def abandon(self) -> None:
        """Close the file without the rows that wait."""
        if self._file is not None:
            self._file.close()

    def _flush(self) -> None:
        import pyarrow as pa

        if self._pending:
            whole = pa.concat_tables(self._pending).combine_chunks()
            if self._file is None:
                self._file = self._opened(whole)
            self._file.write_table(whole, row_group_size=ROW_GROUP_ROWS)
            self._pending, self._pending_rows, self._pending_bytes = [], 0, 0

    def _opened(self, first: pa.Table) -> pq.ParquetWriter:
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        sample = first.slice(0, _SAMPLE_ROWS)
        # Limits of whole items would only make the footer large.
        limited = [name for name in self._schema.names if name != names.ITEM]
        repeating = [
            name
            for name in limited
            if pc.count_distinct(sample.column(name)).as_py() <= _MOST_DISTINCT * len(sample)
        ]
        return pq.ParquetWriter(
            self.path,
            self._schema,
            compression=COMPRESSION,
            compression_level=COMPRESSION_LEVEL,
            data_page_size=_PAGE_BYTES,
            use_dictionary=repeating,
            column_encoding={names.SEQ: "DELTA_BINARY_PACKED"}
            if names.SEQ not in repeating
            else {},
            write_statistics=limited,
        )


class _Merger:
    def __init__(
        self,
        store: ObjectStore,
        columns: Sequence[Column],
        key_of: Callable[[int], str],
        folder: Path,
        target_bytes: int,
    ) -> None:
        self._store = store
        self._columns = columns
        self._schema = schema_of(columns)
        self._key_of = key_of
        self._folder = folder
        self._target_bytes = target_bytes
        self._writers: dict[date, _Writer] = {}
        self._written: list[Output] = []
        self._number = 0

    def add(self, batch: pa.RecordBatch) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        table = _fitted(pa.Table.from_batches([batch]), self._schema)
        column = table.column(names.DAY)
        days = sorted(pc.unique(column).to_pylist())
        for day in days:
            part = table.filter(pc.equal(column, pa.scalar(day))) if len(days) > 1 else table
            writer = self._writers.get(day)
            if writer is None:
                self._number += 1
                path = self._folder / f"output-{self._number}.parquet"
                writer = self._writers[day] = _Writer(path, day, self._columns)
            writer.add(part)
            if writer.size >= self._target_bytes:
                self._close(self._writers.pop(day))

    def finish(self) -> list[Output]:
        for day in sorted(self._writers):
            self._close(self._writers[day])
        self._writers.clear()
        return self._written

    def abandon(self) -> None:
        """Close what is open after an error; the folder goes with it."""
        for writer in self._writers.values():
            writer.abandon()
        self._writers.clear()

    def _close(self, writer: _Writer) -> None:
        writer.close()
        key = self._key_of(len(self._written))
        size = self._store.put_stream(key, _chunks(writer.path))
        writer.path.unlink()
        self._written.append(
            Output(
                key=key,
                day=writer.day,
                items=writer.items,
                bytes=size,
                raw_bytes=writer.raw_bytes,
                first_batch=writer.first_batch,
                last_batch=writer.last_batch,
            )
        )


def _fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the table with every column of the schema, missing ones filled with nulls."""
    import pyarrow as pa

    known = set(table.column_names)
    return pa.table(
        [
            table.column(field.name).cast(field.type)
            if field.name in known
            else pa.nulls(len(table), field.type)
            for field in schema
        ],
        schema=schema,
    )


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk
