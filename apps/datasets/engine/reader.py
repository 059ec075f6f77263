"""Reads items with DuckDB over the Parquet files that the manifest lists.

Imported on use: DuckDB and pyarrow take half a second, and every web process imports the callers.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from apps.datasets.engine.errors import BadItemQuery, DataUnavailable
from apps.datasets.engine.filters import FieldNames, ItemFilter, order_by, quoted, text_of, where
from yardkit.errors import first_line
from yardkit.items import columns as names
from yardkit.items.columns import Columns
from yardkit.items.segments import system_type
from yardkit.objects import ObjectStore, ObjectStoreError

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

# Longer than any query that this module was made for; a page waits for it.
TIMEOUT_SECONDS: Final = 30.0
MEMORY_LIMIT: Final = "1GB"
_THREADS: Final = max(1, min(4, os.cpu_count() or 1))
MOST_ITEMS: Final = 1000
# Order of storing, unique within a dataset.
_PLACE: Final = (names.RUN, names.BATCH, names.INCARNATION, names.SEQ)
_SETTINGS: Final[dict[str, Any]] = {
    "threads": _THREADS,
    "memory_limit": MEMORY_LIMIT,
    # Extensions would be loaded from their maker's host at run time.
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "preserve_insertion_order": False,
}


class File(msgspec.Struct, frozen=True):
    """A file of the manifest. ``batch``: of a segment, None for a file of the table."""

    key: str
    run: int
    items: int
    batch: int | None
    first_batch: int
    last_batch: int


class ItemQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which items, in which order. ``latest``: only the last one of each key."""

    filters: tuple[ItemFilter, ...] = ()
    text: str = ""
    sort: str = ""
    latest: bool = False
    limit: int = 50
    after: str = ""

    @property
    def is_plain(self) -> bool:
        """Return whether the query takes all items in the order of storing."""
        return not (self.filters or self.text or self.sort or self.latest)


class Item(msgspec.Struct, frozen=True):
    """One item with its identity. ``json`` is the item as it came."""

    run: int
    incarnation: str
    seq: int
    at: datetime
    url: str
    flags: str
    batch: int
    json: str

    @property
    def data(self) -> dict[str, Any]:
        """Return the item's fields."""
        found: dict[str, Any] = msgspec.json.decode(self.json)
        return found

    @property
    def id(self) -> str:
        """Return the identity as text, such as ``7-b2f0-15``."""
        return f"{self.run}-{self.incarnation}-{self.seq}"


class ItemPage(msgspec.Struct, frozen=True):
    """Items, and the cursor of the next page; "" at the end."""

    items: list[Item]
    next: str


class FieldValues(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of one field. ``top``: the most frequent values; ``bins``: [from, to, count]."""

    count: int
    distinct: int
    low: str | None
    high: str | None
    mean: float | None
    top: list[tuple[str, int]]
    bins: list[tuple[float, float, int]]


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of keys by what became of them from one run to another.

    ``without_key``: items of either run whose key has a missing field. ``duplicates``: items whose
    key an earlier item of the same run has; they are not compared.
    """

    added: int
    removed: int
    changed: int
    equal: int
    without_key: int
    duplicates: int


class ComparedItem(msgspec.Struct, frozen=True):
    """An item in two runs, by its key; None where a run does not have it."""

    key: list[str]
    old: dict[str, Any] | None
    new: dict[str, Any] | None

    @property
    def fields(self) -> list[str]:
        """Return the fields that differ."""
        old, new = self.old or {}, self.new or {}
        return [name for name in dict.fromkeys([*old, *new]) if old.get(name) != new.get(name)]


class ItemReader:
    """One connection to DuckDB over some files. Use it as a context manager, in one thread."""

    def __init__(
        self,
        store: ObjectStore,
        files: Sequence[File],
        columns: Columns,
        *,
        key_fields: Sequence[str] = (),
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self._store = store
        self._files = sorted(files, key=lambda file: (file.run, file.first_batch))
        self._columns = columns
        self._key_fields = list(key_fields)
        self._timeout = timeout_seconds
        self._stack = contextlib.ExitStack()
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._views = 0

    def __enter__(self) -> Self:
        import duckdb

        folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="crawlyard-items-"))
        self._folder = Path(folder)
        settings = {**_SETTINGS, "temp_directory": folder}
        self._connection = self._stack.enter_context(
            contextlib.closing(duckdb.connect(":memory:", config=settings))
        )
        self._connection.execute("SET TimeZone = 'UTC'")
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    # --- items ----------------------------------------------------------------------------------

    def page(self, query: ItemQuery) -> ItemPage:
        """Return the next items. Raises ``BadItemQuery`` and ``DataUnavailable``."""
        if not 0 < query.limit <= MOST_ITEMS:
            raise BadItemQuery(f"limit is 1 to {MOST_ITEMS}")
        if query.sort or query.latest:
            return self._sorted_page(query)
        after = _place_of(query.after)
        files = [file for file in self._files if _may_follow(file, after)]
        if query.is_plain:
            files = _enough(files, after, query.limit + 1)
        source, fields = self._source(files)
        condition = where(query.filters, query.text, fields)
        parameters = [*condition.parameters]
        keyset = ""
        if after is not None:
            keyset = f" AND ({', '.join(_PLACE)}) > (?, ?, ?, ?)"
            parameters += after
        rows = self._rows(
            f"SELECT {_ITEM} FROM {source} WHERE ({condition.text}){keyset} "  # noqa: S608 - bound
            f"ORDER BY {', '.join(_PLACE)} LIMIT {query.limit + 1}",
            parameters,
        )
        items = [_item(row) for row in rows[: query.limit]]
        more = len(rows) > query.limit
        return ItemPage(items, _cursor(items[-1]) if more else "")

    def _sorted_page(self, query: ItemQuery) -> ItemPage:
        offset = _offset_of(query.after)
        source, fields = self._source(self._files)
        condition = where(query.filters, query.text, fields)
        order = order_by(query.sort, fields) if query.sort else ""
        selected = self._selected(source, fields, latest=query.latest)
        rows = self._rows(
            f"SELECT {_ITEM} FROM {selected} WHERE {condition.text} "  # noqa: S608 - bound
            f"ORDER BY {order}{', '.join(_PLACE)} LIMIT {query.limit + 1} OFFSET {offset}",
            condition.parameters,
        )
        items = [_item(row) for row in rows[: query.limit]]
        more = len(rows) > query.limit
        return ItemPage(items, str(offset + query.limit) if more else "")

    def count(self, query: ItemQuery) -> int:
        """Return the number of items of a query; without conditions from the manifest."""
        if not (query.filters or query.text or query.latest):
            return sum(file.items for file in self._files)
        source, fields = self._source(self._files)
        condition = where(query.filters, query.text, fields)
        selected = self._selected(source, fields, latest=query.latest)
        text = f"SELECT count(*) FROM {selected} WHERE {condition.text}"  # noqa: S608 - bound
        ((number,),) = self._rows(text, condition.parameters)
        return int(number)

    def batches(
        self, query: ItemQuery, *, fields: Sequence[str] | None = None, rows: int = 10_000
    ) -> Iterator[pa.RecordBatch]:
        """Yield the items of a query with system columns and fields, in flat memory.

        Columns: those of ``fields`` under the fields' names, several types as text; without
        ``fields`` the system columns and every column as they are.
        """
        source, known = self._source(self._files)
        condition = where(query.filters, query.text, known)
        selected = self._selected(source, known, latest=query.latest)
        chosen = "*" if fields is None else ", ".join(_chosen(field, known) for field in fields)
        order = order_by(query.sort, known) if query.sort else ""
        text = (
            f"SELECT {chosen} FROM {selected} WHERE {condition.text} "  # noqa: S608 - bound
            f"ORDER BY {order}{', '.join(_PLACE)}"
        )
        with self._guarded():
            # Without a limit of time: the reader decides how fast it takes.
            reader: Any = (
                self._open().execute(text, list(condition.parameters)).to_arrow_reader(rows)
            )
            yield from reader

    def since(self, batch: int, offset: int, rows: int) -> Iterator[tuple[int, int, list[Item]]]:
        """Yield items stored after some batch, for deliveries, in the order of batches.

        Yields (batch, number of its items that are then taken, items); a batch is complete when
        its number changes.
        """
        files = [file for file in self._files if file.last_batch >= batch]
        source, _fields = self._source(files)
        taken = {batch: offset}
        after = (batch, offset)
        with self._guarded():
            cursor = self._open().execute(
                f"SELECT {_ITEM} FROM {source} WHERE {names.BATCH} >= ? "  # noqa: S608 - bound
                f"ORDER BY {names.BATCH}, {names.RUN}, {names.INCARNATION}, {names.SEQ} "
                "OFFSET ?",
                [after[0], after[1]],
            )
            while found := cursor.fetchmany(rows):
                items = [_item(row) for row in found]
                last = items[-1].batch
                for item in items:
                    taken[item.batch] = taken.get(item.batch, 0) + 1
                yield last, taken[last], items

    # --- statistics -----------------------------------------------------------------------------

    def values(self, field: str, query: ItemQuery, *, top: int = 20, bins: int = 20) -> FieldValues:
        """Return statistics of a field over the items of a query."""
        source, fields = self._source(self._files)
        condition = where(query.filters, query.text, fields)
        selected = self._selected(source, fields, latest=query.latest)
        place = f"FROM {selected} WHERE {condition.text}"
        text = text_of(field, fields)
        number = f"TRY_CAST({text} AS DOUBLE)"
        columns = fields.of(field)
        numeric = bool(columns) and all(column.type in ("long", "double") for column in columns)
        ((count, distinct, low, high, mean, least, most),) = self._rows(
            f"SELECT count({text}), approx_count_distinct({text}), min({text}), max({text}), "
            f"avg({number}), min({number}), max({number}) {place}",
            condition.parameters,
        )
        frequent = self._rows(
            f"SELECT {text} AS value, count(*) AS number {place} AND {text} IS NOT NULL "
            f"GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {int(top)}",
            condition.parameters,
        )
        histogram: list[tuple[float, float, int]] = []
        if numeric and count and most > least:
            width = (most - least) / bins
            rows = self._rows(
                f"SELECT least(floor(({number} - ?) / ?), {bins - 1}) AS bin, count(*) {place} "
                f"AND {text} IS NOT NULL GROUP BY 1 ORDER BY 1",
                [least, width, *condition.parameters],
            )
            counts = {int(place): number for place, number in rows}
            histogram = [
                (least + width * place, least + width * (place + 1), counts.get(place, 0))
                for place in range(bins)
            ]
        return FieldValues(
            count=count,
            distinct=min(distinct, count),
            low=f"{least:g}" if numeric and count else low,
            high=f"{most:g}" if numeric and count else high,
            mean=mean if numeric else None,
            top=[(str(value), number) for value, number in frequent],
            bins=histogram,
        )

    # --- two runs -------------------------------------------------------------------------------

    def compare(self, old: int, new: int) -> Comparison:
        """Compare two runs by the key fields. Raises ``BadItemQuery`` without a key."""
        joined = self._joined(old, new)
        ((added, removed, changed, equal),) = self._rows(
            "SELECT count(*) FILTER (kind = 'added'), count(*) FILTER (kind = 'removed'), "  # noqa: S608 - views
            f"count(*) FILTER (kind = 'changed'), count(*) FILTER (kind = 'equal') FROM {joined}"
        )
        without = doubled = 0
        for run in (old, new):
            source, fields = self._source(self._of_run(run))
            keys = [text_of(field, fields) for field in self._key()]
            present = " AND ".join(f"{key} IS NOT NULL" for key in keys)
            ((items, keyed, distinct),) = self._rows(
                f"SELECT count(*), count(*) FILTER ({present}), "  # noqa: S608 - quoted names
                f"count(DISTINCT ({', '.join(keys)},)) FILTER ({present}) FROM {source}"
            )
            without += items - keyed
            doubled += keyed - distinct
        return Comparison(
            added=added,
            removed=removed,
            changed=changed,
            equal=equal,
            without_key=without,
            duplicates=doubled,
        )

    def compared(
        self, old: int, new: int, kind: str, *, limit: int = 50, after: str = ""
    ) -> tuple[list[ComparedItem], str]:
        """Return items that were added, removed, changed or are equal, and the next cursor."""
        if kind not in ("added", "removed", "changed", "equal"):
            raise BadItemQuery(f"kind is added, removed, changed or equal, not {kind[:50]!r}")
        if not 0 < limit <= MOST_ITEMS:
            raise BadItemQuery(f"limit is 1 to {MOST_ITEMS}")
        offset = _offset_of(after)
        joined = self._joined(old, new)
        rows = self._rows(
            f"SELECT keys, old_item, new_item FROM {joined} WHERE kind = ? "  # noqa: S608 - views
            f"ORDER BY keys LIMIT {limit + 1} OFFSET {offset}",
            [kind],
        )
        items = [
            ComparedItem(list(keys), _decoded(before), _decoded(now))
            for keys, before, now in rows[:limit]
        ]
        return items, str(offset + limit) if len(rows) > limit else ""

    def duplicates(self) -> int:
        """Return how many items have the key of an earlier one."""
        source, fields = self._source(self._files)
        keys = [text_of(field, fields) for field in self._key()]
        present = " AND ".join(f"{key} IS NOT NULL" for key in keys)
        ((keyed, distinct),) = self._rows(
            f"SELECT count(*), count(DISTINCT ({', '.join(keys)},)) FROM {source} "  # noqa: S608 - quoted names
            f"WHERE {present}"
        )
        return int(keyed - distinct)

    def history(self, key: Sequence[str], *, limit: int = MOST_ITEMS) -> list[Item]:
        """Return the items of one key over all runs, the newest first."""
        source, fields = self._source(self._files)
        if len(key) != len(self._key()):
            raise BadItemQuery(f"the key has {len(self._key())} fields: {', '.join(self._key())}")
        matches = " AND ".join(f"{text_of(field, fields)} = ?" for field in self._key())
        rows = self._rows(
            f"SELECT {_ITEM} FROM {source} WHERE {matches} "  # noqa: S608 - bound
            f"ORDER BY {', '.join(f'{name} DESC' for name in _PLACE)} LIMIT {int(limit)}",
            list(key),
        )
        return [_item(row) for row in rows]

    def _joined(self, old: int, new: int) -> str:
        """Return a view of the keys of two runs with what became of them."""
        sides = []
        for run in (old, new):
            source, fields = self._source(self._of_run(run))
            keys = [text_of(field, fields) for field in self._key()]
            present = " AND ".join(f"{key} IS NOT NULL" for key in keys)
            listed = ", ".join(keys)
            # Values alone: the order of an item's fields means nothing.
            values = ", ".join(
                f"{text_of(field, fields)}" if field in fields_of(fields) else "NULL::VARCHAR"
                for field in self._columns.fields
            )
            sides.append(
                f"(SELECT [{listed}] AS keys, {names.ITEM} AS item, "  # noqa: S608 - quoted names
                f"hash({values or 'NULL'}) AS content FROM {source} WHERE {present} "
                f"QUALIFY row_number() OVER (PARTITION BY {listed} "
                f"ORDER BY {', '.join(_PLACE)}) = 1)"
            )
        name = self._name()
        self._run(
            f"CREATE TEMP VIEW {name} AS SELECT coalesce(n.keys, o.keys) AS keys, "  # noqa: S608 - quoted names
            "o.item AS old_item, n.item AS new_item, "
            "CASE WHEN o.keys IS NULL THEN 'added' WHEN n.keys IS NULL THEN 'removed' "
            "WHEN o.content = n.content THEN 'equal' ELSE 'changed' END AS kind "
            f"FROM {sides[0]} o FULL OUTER JOIN {sides[1]} n ON o.keys = n.keys"
        )
        return name

    def _key(self) -> list[str]:
        if not self._key_fields:
            raise BadItemQuery("the dataset has no key; name the fields that identify an item")
        return self._key_fields

    def _of_run(self, run: int) -> list[File]:
        return [file for file in self._files if file.run == run]

    # --- sources --------------------------------------------------------------------------------

    def _selected(self, source: str, fields: FieldNames, *, latest: bool) -> str:
        if not latest:
            return source
        keys = [text_of(field, fields) for field in self._key()]
        order = ", ".join(f"{name} DESC" for name in _PLACE)
        present = " AND ".join(f"{key} IS NOT NULL" for key in keys)
        return (
            f"(SELECT * FROM {source} WHERE {present} QUALIFY row_number() OVER "  # noqa: S608 - quoted
            f"(PARTITION BY {', '.join(keys)} ORDER BY {order}) = 1)"
        )

    def _source(self, files: Sequence[File]) -> tuple[str, FieldNames]:
        """Return a view over some files, and the columns that it has."""
        parts = []
        table_files = [file for file in files if file.batch is None]
        segments = [file for file in files if file.batch is not None]
        if table_files:
            parts.append(self._table_files(table_files))
        if segments:
            parts.append(self._segments(segments))
        name = self._name()
        if not parts:
            import pyarrow as pa

            self._keep = pa.table(
                {column: pa.nulls(0, system_type(column)) for column in names.SYSTEM}
            )
            self._open().register(name, self._keep)
        else:
            self._run(f"CREATE TEMP VIEW {name} AS {' UNION ALL BY NAME '.join(parts)}")
        present = [row[0] for row in self._rows(f"DESCRIBE {name}")]
        return name, FieldNames(self._columns, present)

    def _table_files(self, files: Sequence[File]) -> str:
        paths = [self._store.local_path(file.key) for file in files]
        if all(path is not None for path in paths):
            return f"SELECT * FROM read_parquet({_listed(paths)}, union_by_name = true)"  # noqa: S608 - quoted
        import pyarrow.dataset

        from apps.datasets.engine.merging import schema_of

        filesystem, root = self._store.arrow()
        dataset = pyarrow.dataset.dataset(
            [f"{root}/{file.key}" for file in files],
            schema=schema_of(list(self._columns)),
            filesystem=filesystem,
            format="parquet",
        )
        name = self._name()
        self._open().register(name, dataset)
        return f"SELECT * FROM {name}"  # noqa: S608 - our name

    def _segments(self, files: Sequence[File]) -> str:
        paths = [self._fetched(file) for file in files]
        name = self._name()
        self._run(f"CREATE TEMP TABLE {name} (path VARCHAR, batch BIGINT)")
        self._open().executemany(
            f"INSERT INTO {name} VALUES (?, ?)",  # noqa: S608 - our name
            [[str(path), file.batch] for path, file in zip(paths, files, strict=True)],
        )
        return (
            f"SELECT s.* EXCLUDE (crawlyard_file), b.batch AS {names.BATCH} "  # noqa: S608 - quoted
            f"FROM read_parquet({_listed(paths)}, union_by_name = true, "
            f"filename = 'crawlyard_file') s JOIN {name} b ON s.crawlyard_file = b.path"
        )

    def _fetched(self, file: File) -> Path:
        """Return a segment as a local file; they are small, and soon merged."""
        path = self._store.local_path(file.key)
        if path is not None:
            return path
        path = self._folder / file.key.replace("/", "_")
        if not path.exists():
            try:
                path.write_bytes(self._store.get(file.key))
            except ObjectStoreError as error:
                raise DataUnavailable(str(error)) from error
        return path

    # --- DuckDB ---------------------------------------------------------------------------------

    def _name(self) -> str:
        self._views += 1
        return f"view_{self._views}"

    def _open(self) -> duckdb.DuckDBPyConnection:
        if self._connection is None:
            raise RuntimeError("the reader is used outside its context")
        return self._connection

    def _run(self, text: str) -> None:
        self._rows(text, fetch=False)

    def _rows(self, text: str, parameters: Sequence[Any] = (), *, fetch: bool = True) -> list[Any]:
        connection = self._open()
        timer = threading.Timer(self._timeout, connection.interrupt)
        timer.daemon = True
        timer.start()
        try:
            with self._guarded():
                done = connection.execute(text, list(parameters))
                return done.fetchall() if fetch else []
        finally:
            timer.cancel()

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        import duckdb

        try:
            yield
        except duckdb.InterruptException as error:
            text = f"the query took longer than {self._timeout:g} s; filter fewer runs"
            raise BadItemQuery(text) from error
        except (duckdb.IOException, duckdb.HTTPException, OSError) as error:
            raise DataUnavailable(first_line(error)) from error
        except duckdb.OutOfMemoryException as error:
            raise BadItemQuery(f"the query needs too much memory: {first_line(error)}") from error


_ITEM: Final = ", ".join(
    (
        names.RUN,
        names.INCARNATION,
        names.SEQ,
        names.AT,
        names.URL,
        names.FLAGS,
        names.BATCH,
        names.ITEM,
    )
)


def fields_of(fields: FieldNames) -> set[str]:
    """Return the fields that have a column in the files at hand."""
    return {column.field for column in fields.all()}


def _item(row: Sequence[Any]) -> Item:
    run, incarnation, seq, at, url, flags, batch, text = row
    return Item(run, incarnation, seq, at, url or "", flags or "", batch, text)


def _decoded(text: str | None) -> dict[str, Any] | None:
    return None if text is None else msgspec.json.decode(text)


def _chosen(field: str, fields: FieldNames) -> str:
    columns = fields.of(field)
    if len(columns) == 1:
        return f"{quoted(columns[0].column)} AS {quoted(field)}"
    return f"{text_of(field, fields)} AS {quoted(field)}"


def _listed(paths: Sequence[Path | None]) -> str:
    texts = ", ".join("'" + str(path).replace("'", "''") + "'" for path in paths)
    return f"[{texts}]"


def _cursor(item: Item) -> str:
    place = [item.run, item.batch, item.incarnation, item.seq]
    return msgspec.json.encode(place).hex()


def _place_of(cursor: str) -> list[Any] | None:
    if not cursor:
        return None
    try:
        place = msgspec.json.decode(bytes.fromhex(cursor), type=tuple[int, int, str, int])
    except (ValueError, msgspec.DecodeError):
        raise BadItemQuery(f"{cursor[:50]!r} is no cursor of this list") from None
    return list(place)


def _offset_of(cursor: str) -> int:
    if not cursor:
        return 0
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 12):
        raise BadItemQuery(f"{cursor[:50]!r} is no cursor of this list")
    return int(cursor)


def _may_follow(file: File, after: list[Any] | None) -> bool:
    return after is None or (file.run, file.last_batch) >= (after[0], after[1])


def _enough(files: Sequence[File], after: list[Any] | None, wanted: int) -> list[File]:
    """Return the first files that hold the wanted number of items for certain."""
    chosen: list[File] = []
    certain = 0
    limit: tuple[int, int] | None = None
    for file in files:
        if limit is not None and (file.run, file.first_batch) > limit:
            break
        chosen.append(file)
        if after is None or (file.run, file.first_batch) > (after[0], after[1]):
            certain += file.items
            if certain >= wanted and limit is None:
                # Later files may begin before this one ends.
                limit = max((known.run, known.last_batch) for known in chosen)
    return chosen
