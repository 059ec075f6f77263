"""Connection to DuckDB over the Parquet files that the manifest lists."""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Self, TypeVar

from apps.datasets.engine.errors import BadItemQuery, DataUnavailable, gettext_noop
from apps.datasets.engine.filters import FieldNames, text_of
from apps.datasets.engine.item_types import ITEM_COLUMNS, PLACE, File
from yardkit.errors import first_line
from yardkit.items import columns as names
from yardkit.items.columns import Columns
from yardkit.items.segments import system_type
from yardkit.objects import ObjectStore, ObjectStoreError

if TYPE_CHECKING:
    import duckdb

# Longer than any query that this module was made for; a page waits for it.
TIMEOUT_SECONDS: Final = 30.0
MEMORY_LIMIT: Final = "1GB"
_THREADS: Final = max(1, min(4, os.cpu_count() or 1))
_SETTINGS: Final[dict[str, Any]] = {
    "threads": _THREADS,
    "memory_limit": MEMORY_LIMIT,
    # Extensions would be loaded from their maker's host at run time.
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}
_P = ParamSpec("_P")
_R = TypeVar("_R")
_S = TypeVar("_S", bound="ItemSource")


def with_current_files(
    method: Callable[Concatenate[_S, _P], _R],
) -> Callable[Concatenate[_S, _P], _R]:
    """Repeat a read once if a file is missing and the manifest has other files by now.

    Replaced files are deleted after a while, and exports and deliveries take longer.
    """

    @functools.wraps(method)
    def read(self: _S, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return method(self, *args, **kwargs)
        except DataUnavailable:
            if not self.reload():
                raise
            return method(self, *args, **kwargs)

    return read


class ItemSource:
    """Files of a dataset in one connection. Use it as a context manager, in one thread."""

    def __init__(
        self,
        store: ObjectStore,
        files: Sequence[File],
        columns: Columns,
        *,
        key_fields: Sequence[str] = (),
        timeout_seconds: float = TIMEOUT_SECONDS,
        manifest: Callable[[], Sequence[File]] | None = None,
    ) -> None:
        """``manifest`` returns the files as they are by now."""
        self._store = store
        self._files = _in_order(files)
        self._manifest = manifest
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
        self._connection = self._stack.enter_context(
            contextlib.closing(
                duckdb.connect(":memory:", config={**_SETTINGS, "temp_directory": folder})
            )
        )
        self._connection.execute("SET TimeZone = 'UTC'")
        # Whatever a query says, it reads no other file, and changes no setting.
        places = _listed([Path(folder), *self._places()])
        self._connection.execute(f"SET allowed_directories = {places}")
        self._connection.execute("SET enable_external_access = false")
        self._connection.execute("SET lock_configuration = true")
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def reload(self) -> bool:
        """Read the manifest again; return whether it has other files."""
        if self._manifest is None:
            return False
        files = _in_order(self._manifest())
        changed = {file.key for file in files} != {file.key for file in self._files}
        self._files = files
        return changed

    def _places(self) -> set[Path]:
        """Return the folders of the datasets that are read; none in a bucket."""
        keys = {"/".join(file.key.split("/")[:3]) for file in self._files}
        paths = {self._store.local_path(key) for key in keys}
        return {path for path in paths if path is not None}

    def _key(self) -> list[str]:
        if not self._key_fields:
            raise BadItemQuery(
                gettext_noop("The dataset has no key. Name the fields that identify an item.")
            )
        return self._key_fields

    def _of_run(self, run: int) -> list[File]:
        return [file for file in self._files if file.run == run]

    # --- sources --------------------------------------------------------------------------------

    def _selected(self, source: str, fields: FieldNames, *, latest: bool) -> str:
        if not latest:
            return source
        keys = [text_of(field, fields) for field in self._key()]
        order = ", ".join(f"{name} DESC" for name in PLACE)
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

    def _item_rows(self, files: Sequence[File], place: str, parameters: Sequence[Any]) -> list[Any]:
        """Return rows of ``ITEM_COLUMNS`` of a query that begins with ``FROM``, in its order.

        Whole items are the largest column: they are read of the rows that the query finds, and not
        of those that it only looks at or sorts.
        """
        columns = ", ".join(PLACE)
        places = self._rows(f"SELECT {columns} {place}", parameters)
        if not places:
            return []
        holding = [
            file
            for file in files
            if any(
                file.run == run and file.first_batch <= batch <= file.last_batch
                for run, batch, _incarnation, _seq in places
            )
        ]
        source, _fields = self._source(holding)
        # One condition a column is what the statistics of row groups can answer.
        conditions = [
            f"{name} IN ({', '.join('?' * len(values))})"
            for name, values in zip(PLACE, zip(*places, strict=True), strict=True)
        ]
        rows = self._rows(
            f"SELECT {columns}, {ITEM_COLUMNS} FROM {source} "  # noqa: S608 - bound
            f"WHERE {' AND '.join(conditions)}",
            [value for values in zip(*places, strict=True) for value in values],
        )
        found = {row[: len(PLACE)]: row[len(PLACE) :] for row in rows}
        return [found[place] for place in places]

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        import duckdb

        try:
            yield
        except duckdb.InterruptException as error:
            text = gettext_noop("The query took longer than %(seconds)s s. Choose fewer runs.")
            raise BadItemQuery(text, seconds=f"{self._timeout:g}") from error
        except (duckdb.IOException, duckdb.HTTPException, OSError) as error:
            raise DataUnavailable(first_line(error)) from error
        except duckdb.OutOfMemoryException as error:
            text = gettext_noop("The query needs too much memory: %(why)s")
            raise BadItemQuery(text, why=first_line(error)) from error
        except duckdb.InvalidInputException as error:
            # How it passes on the errors of files that pyarrow reads.
            if "reading the stream" not in str(error):
                raise
            raise DataUnavailable(first_line(error)) from error


def _in_order(files: Sequence[File]) -> list[File]:
    return sorted(files, key=lambda file: (file.run, file.first_batch))


def _listed(paths: Sequence[Path | None]) -> str:
    texts = ", ".join("'" + str(path).replace("'", "''") + "'" for path in paths)
    return f"[{texts}]"
