"""Bulk upsert: one statement with array parameters on PostgreSQL, ``executemany`` on SQLite.

On PostgreSQL, parsing an INSERT with 500 rows of placeholders takes longer than writing the rows,
and ``bulk_update`` evaluates one CASE with all rows for each row.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from django.db import connection

_POSTGRES: Final = "postgresql"
_NUMBERS: Final = frozenset({"smallint", "bigint", "float8"})


@dataclass(frozen=True, slots=True)
class Upsert:
    """INSERT ... ON CONFLICT DO UPDATE for one table. SQL text is constant, values are parameters.

    Args:
        table: Table name.
        columns: PostgreSQL types by column name, in the order of a row's values.
        key: The columns of a unique index.
        change: SET clause for an existing row; ``excluded`` is the new row.
        only_where: Condition for updating an existing row.
        only_if: Condition for writing a new row; ``{column}`` is the value of a column.
    """

    table: str
    columns: Mapping[str, str]
    key: Sequence[str]
    change: str
    only_where: str = ""
    only_if: str = ""
    _statements: dict[str, str] = field(default_factory=dict, init=False)

    def write(self, rows: Sequence[Sequence[Any]]) -> int:
        """Write rows in the order of their keys, so that concurrent writers do not deadlock.

        Keys must be unique within ``rows``. Return the number of rows written.
        """
        if not rows:
            return 0
        with connection.cursor() as cursor:
            if connection.vendor == _POSTGRES:
                cursor.execute(self._statement(), list(self._arrays(rows)))
            else:
                cursor.executemany(self._statement(), list(self._plain(rows)))
            return int(cursor.rowcount)

    def _statement(self) -> str:
        vendor = connection.vendor
        if vendor not in self._statements:
            head = f"INSERT INTO {self.table} ({', '.join(self.columns)})"
            body = self._from_arrays() if vendor == _POSTGRES else self._from_places()
            tail = f"ON CONFLICT ({', '.join(self.key)}) DO UPDATE SET {self.change}"
            where = f" WHERE {self.only_where}" if self.only_where else ""
            self._statements[vendor] = f"{head} {body} {tail}{where}"
        return self._statements[vendor]

    def _from_arrays(self) -> str:
        arrays = ", ".join(f"%s::{kind}[]" for kind in self.columns.values())
        values = {name: f"fresh.{name}" for name in self.columns}
        only_if = f" WHERE {self.only_if.format_map(values)}" if self.only_if else ""
        # Without ORDER BY the query plan would decide in which order rows are locked.
        return (
            f"SELECT {', '.join(values.values())}"  # noqa: S608 - constant text
            f" FROM unnest({arrays}) AS fresh({', '.join(self.columns)}){only_if}"
            f" ORDER BY {', '.join(values[name] for name in self.key)}"
        )

    def _from_places(self) -> str:
        values = {name: f"?{number}" for number, name in enumerate(self.columns, 1)}
        # Without a WHERE, SQLite parses ON CONFLICT as the ON of a join.
        only_if = self.only_if.format_map(values) if self.only_if else "true"
        return f"SELECT {', '.join(values.values())} WHERE {only_if}"

    def _arrays(self, rows: Sequence[Sequence[Any]]) -> Iterable[list[Any] | str]:
        for kind, values in zip(self.columns.values(), zip(*rows, strict=True), strict=True):
            if kind in _NUMBERS:
                yield _array(values)
                continue
            dump = _dumps(kind)
            yield list(values) if dump is None else [*map(dump, values)]

    def _plain(self, rows: Sequence[Sequence[Any]]) -> Iterable[Sequence[Any]]:
        dumps = [
            (place, dump)
            for place, kind in enumerate(self.columns.values())
            if (dump := _dumps(kind)) is not None
        ]
        # SQLite writes in the given order.
        places = [list(self.columns).index(name) for name in self.key]
        for row in sorted(rows, key=lambda row: [row[place] for place in places]):
            if not dumps:
                yield row
                continue
            values = list(row)
            for place, dump in dumps:
                values[place] = dump(values[place])
            yield values


def _array(values: Iterable[float | None]) -> str:
    """Return a PostgreSQL array literal of numbers; the driver would adapt each value."""
    return "{" + ",".join(["NULL" if v is None else repr(v) for v in values]) + "}"


def _dumps(kind: str) -> Any:
    """Return the function that adapts values of a column type for the driver; None if none does."""
    if kind == "jsonb":
        return _json
    if kind == "timestamptz":
        return connection.ops.adapt_datetimefield_value
    return None


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
