"""Table operations of deliveries on SQLite and PostgreSQL."""

from __future__ import annotations

import enum
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from apps.datasets.engine.errors import gettext_noop
from apps.datasets.engine.filters import quoted
from apps.datasets.engine.targets.base import BadTarget, TargetUnavailable
from apps.runtime.engine.postgres_link import link_options
from yardkit.errors import first_line

_LOCK_SECONDS: Final = 20.0
# A table that somebody has locked must not hold up the other deliveries.
_STATEMENT_SECONDS: Final = 30
# Classes of errors about rights, and about a table that is made otherwise.
_NOT_OF_VALUES: Final = ("42", "3D", "3F")


class ColumnType(enum.StrEnum):
    """Type of a column."""

    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    TEXT = "text"
    TIME = "time"
    JSON = "json"


class ValuesRejected(Exception):
    """The database rejects these values permanently."""


class TableChanged(Exception):
    """Another process has changed or created the table."""


class TableDatabase(Protocol):
    """Connection, made at the first use. Raises ``ValuesRejected``, ``TableChanged`` and
    ``TargetUnavailable``.
    """

    def columns(self, table: str) -> dict[str, ColumnType]:
        """Return the columns in order; {} for a missing table."""

    def create(self, table: str, columns: dict[str, ColumnType], key: Sequence[str]) -> None:
        """Create the table unless it exists."""

    def add(self, table: str, column: str, kind: ColumnType) -> None:
        """Add the column unless it exists."""

    def replace(
        self,
        table: str,
        columns: Sequence[str],
        key: Sequence[str],
        rows: Sequence[Sequence[Any]],
        *,
        first_delete: Sequence[int] = (),
        newest: Sequence[str] = (),
    ) -> None:
        """In one transaction: delete rows by the first key column, then insert or replace rows.

        ``newest``: columns by which a row that is newer than the given one stays.
        """

    def find(self, table: str, key: Sequence[str], value: int, limit: int) -> list[dict[str, Any]]:
        """Return rows by the first key column, in the key's order; [] for a missing table."""

    def close(self) -> None:
        """Close the connection; the next call opens another."""


def open_database(url: str) -> TableDatabase:
    """Open a database by its URL, in the format of DATABASE_URL. Raises ``BadTarget``."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return SqliteDatabase(Path(unquote(parts.path)[1:]))
    if parts.scheme in ("postgresql", "postgres"):
        return PostgresDatabase(url)
    raise BadTarget(
        "address", gettext_noop("Use sqlite:////path/to/file or postgresql://host/name.")
    )


class SqliteDatabase:
    """SQLite file, possibly the platform's own."""

    _TYPES: Final = {
        ColumnType.INTEGER: "INTEGER",
        ColumnType.NUMBER: "REAL",
        ColumnType.BOOLEAN: "BOOLEAN",
        ColumnType.TEXT: "TEXT",
        ColumnType.TIME: "DATETIME",
        ColumnType.JSON: "JSON",
    }
    _GONE: Final = ("no such table", "no such column", "has no column", "duplicate column")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None

    def columns(self, table: str) -> dict[str, ColumnType]:
        kinds = {name: kind for kind, name in self._TYPES.items()}
        rows = self._do(lambda on: on.execute(f"PRAGMA table_info({quoted(table)})").fetchall())
        return {row[1]: kinds.get(row[2].upper(), ColumnType.TEXT) for row in rows}

    def create(self, table: str, columns: dict[str, ColumnType], key: Sequence[str]) -> None:
        written = ", ".join(f"{quoted(name)} {self._TYPES[kind]}" for name, kind in columns.items())
        keyed = ", ".join(map(quoted, key))
        statement = (
            f"CREATE TABLE IF NOT EXISTS {quoted(table)} ({written}, PRIMARY KEY ({keyed})) "
            "WITHOUT ROWID"
        )
        self._do(lambda on: on.execute(statement))

    def add(self, table: str, column: str, kind: ColumnType) -> None:
        statement = f"ALTER TABLE {quoted(table)} ADD COLUMN {quoted(column)} {self._TYPES[kind]}"
        try:
            self._do(lambda on: on.execute(statement))
        except TableChanged:
            if column not in self.columns(table):
                raise

    def replace(
        self,
        table: str,
        columns: Sequence[str],
        key: Sequence[str],
        rows: Sequence[Sequence[Any]],
        *,
        first_delete: Sequence[int] = (),
        newest: Sequence[str] = (),
    ) -> None:
        name, names = quoted(table), ", ".join(map(quoted, columns))
        places = ", ".join("?" * len(columns))
        delete = f"DELETE FROM {name} WHERE {quoted(key[0])} = ?"  # noqa: S608 - names are quoted
        insert = f"INTO {name} ({names}) VALUES ({places})"
        if newest:
            there = ", ".join(f"{name}.{quoted(column)}" for column in newest)
            given = ", ".join(f"excluded.{quoted(column)}" for column in newest)
            rest = [quoted(column) for column in columns if column not in key]
            insert = (
                f"INSERT {insert} ON CONFLICT ({', '.join(map(quoted, key))}) DO UPDATE SET "
                f"{', '.join(f'{column} = excluded.{column}' for column in rest)} "
                f"WHERE (({there}) > ({given})) IS NOT TRUE"
            )
        else:
            insert = f"INSERT OR REPLACE {insert}"

        def work(on: sqlite3.Connection) -> None:
            on.execute("BEGIN IMMEDIATE")
            try:
                on.executemany(delete, [(value,) for value in first_delete])
                on.executemany(insert, rows)
                on.execute("COMMIT")
            except BaseException:
                if on.in_transaction:
                    on.execute("ROLLBACK")
                raise

        self._do(work)

    def find(self, table: str, key: Sequence[str], value: int, limit: int) -> list[dict[str, Any]]:
        name, order = quoted(table), ", ".join(map(quoted, key))
        statement = f"SELECT * FROM {name} WHERE {quoted(key[0])} = ? ORDER BY {order} LIMIT ?"  # noqa: S608 - names are quoted

        def work(on: sqlite3.Connection) -> list[dict[str, Any]]:
            cursor = on.execute(statement, (value, limit))
            names = [each[0] for each in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor]

        # Reading must not create the file.
        if not self._path.exists() or not self.columns(table):
            return []
        found: list[dict[str, Any]] = self._do(work)
        return found

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _do(self, work: Any) -> Any:
        try:
            return work(self._connected())
        except sqlite3.OperationalError as error:
            if any(part in str(error) for part in self._GONE):
                raise TableChanged(str(error)) from error
            self.close()
            raise TargetUnavailable(f"{self._path.name}: {error}") from error
        except (sqlite3.DataError, sqlite3.IntegrityError, sqlite3.InterfaceError) as error:
            raise ValuesRejected(str(error)) from error
        except (OverflowError, sqlite3.ProgrammingError) as error:
            raise ValuesRejected(str(error)) from error
        except sqlite3.DatabaseError as error:
            self.close()
            raise TargetUnavailable(f"{self._path.name}: {error}") from error

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise TargetUnavailable(f"{error}") from error
            made = sqlite3.connect(
                self._path, timeout=_LOCK_SECONDS, isolation_level=None, check_same_thread=False
            )
            made.execute("PRAGMA journal_mode=WAL")
            # Synced: after a power failure no request may be processed without its records.
            made.execute("PRAGMA synchronous=FULL")
            self._connection = made
        return self._connection


class PostgresDatabase:
    """PostgreSQL server."""

    _TYPES: Final = {
        ColumnType.INTEGER: "bigint",
        ColumnType.NUMBER: "double precision",
        ColumnType.BOOLEAN: "boolean",
        ColumnType.TEXT: "text",
        ColumnType.TIME: "timestamp with time zone",
        ColumnType.JSON: "jsonb",
    }
    _COLUMNS: Final = """
        SELECT a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_attribute a
        WHERE a.attrelid = to_regclass(quote_ident(%s)) AND a.attnum > 0 AND NOT a.attisdropped
        ORDER BY a.attnum
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: psycopg.Connection[Any] | None = None

    def columns(self, table: str) -> dict[str, ColumnType]:
        kinds = {name: kind for kind, name in self._TYPES.items()}
        rows = self._do(lambda on: on.execute(self._COLUMNS, [table]).fetchall())
        return {name: kinds.get(kind, ColumnType.TEXT) for name, kind in rows}

    def create(self, table: str, columns: dict[str, ColumnType], key: Sequence[str]) -> None:
        written = sql.SQL(", ").join(
            sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(self._TYPES[kind]))
            for name, kind in columns.items()
        )
        statement = sql.SQL("CREATE TABLE IF NOT EXISTS {} ({}, PRIMARY KEY ({}))").format(
            sql.Identifier(table), written, sql.SQL(", ").join(map(sql.Identifier, key))
        )
        self._do(lambda on: on.execute(statement))

    def add(self, table: str, column: str, kind: ColumnType) -> None:
        statement = sql.SQL("ALTER TABLE {} ADD COLUMN IF NOT EXISTS {} {}").format(
            sql.Identifier(table), sql.Identifier(column), sql.SQL(self._TYPES[kind])
        )
        self._do(lambda on: on.execute(statement))

    def replace(
        self,
        table: str,
        columns: Sequence[str],
        key: Sequence[str],
        rows: Sequence[Sequence[Any]],
        *,
        first_delete: Sequence[int] = (),
        newest: Sequence[str] = (),
    ) -> None:
        name = sql.Identifier(table)
        delete = sql.SQL("DELETE FROM {} WHERE {} = ANY(%s)").format(name, sql.Identifier(key[0]))
        rest = [column for column in columns if column not in key]
        insert = sql.SQL(
            "INSERT INTO {} ({}) VALUES ({}) ON CONFLICT ({}) DO UPDATE SET {}"
        ).format(
            name,
            sql.SQL(", ").join(map(sql.Identifier, columns)),
            sql.SQL(", ").join(sql.Placeholder() * len(columns)),
            sql.SQL(", ").join(map(sql.Identifier, key)),
            sql.SQL(", ").join(
                sql.SQL("{0} = excluded.{0}").format(sql.Identifier(column)) for column in rest
            ),
        )
        if newest:
            there = sql.SQL(", ").join(sql.Identifier(table, column) for column in newest)
            given = sql.SQL(", ").join(sql.Identifier("excluded", column) for column in newest)
            insert += sql.SQL(" WHERE (({}) > ({})) IS NOT TRUE").format(there, given)

        def work(on: psycopg.Connection[Any]) -> None:
            with on.transaction(), on.cursor() as cursor:
                if first_delete:
                    cursor.execute(delete, [list(first_delete)])
                if rows:
                    cursor.executemany(insert, rows)

        self._do(work)

    def find(self, table: str, key: Sequence[str], value: int, limit: int) -> list[dict[str, Any]]:
        statement = sql.SQL("SELECT * FROM {} WHERE {} = %s ORDER BY {} LIMIT %s").format(
            sql.Identifier(table),
            sql.Identifier(key[0]),
            sql.SQL(", ").join(map(sql.Identifier, key)),
        )

        def work(on: psycopg.Connection[Any]) -> list[dict[str, Any]]:
            with on.cursor(row_factory=dict_row) as cursor:
                return cursor.execute(statement, [value, limit]).fetchall()

        if not self.columns(table):
            return []
        found: list[dict[str, Any]] = self._do(work)
        return found

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _do(self, work: Any) -> Any:
        try:
            return work(self._connected())
        except (
            psycopg.errors.UndefinedTable,
            psycopg.errors.UndefinedColumn,
            psycopg.errors.UniqueViolation,
            psycopg.errors.DuplicateTable,
            psycopg.errors.DuplicateColumn,
        ) as error:
            # Concurrent creation of a table or column collides in the catalog.
            raise TableChanged(first_line(error)) from error
        except psycopg.errors.ProgramLimitExceeded as error:
            # A value that an index cannot hold; to psycopg it is an error of the server.
            raise ValuesRejected(first_line(error)) from error
        except (psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError) as error:
            self.close()
            raise TargetUnavailable(f"{first_line(error)}") from error
        except psycopg.Error as error:
            if (error.sqlstate or "").startswith(_NOT_OF_VALUES):
                raise TargetUnavailable(first_line(error)) from error
            raise ValuesRejected(first_line(error)) from error

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            self._connection = psycopg.connect(
                self._url,
                autocommit=True,
                application_name="crawlyard delivery",
                **link_options(self._url),
            )
            self._connection.execute(f"SET statement_timeout = '{_STATEMENT_SECONDS}s'")
        return self._connection
