"""Items as rows of a table, with a column for each field, added when the field first appears.

Fixed columns: the key, by which a repeated item replaces itself, what describes the item, and
``extra`` for values that have no column or do not fit its type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final, Protocol

from apps.datasets.engine.item_types import Item
from apps.datasets.engine.targets.base import Chunk, NoKey, as_json, clean, identity_of
from apps.datasets.engine.targets.databases import (
    ColumnType,
    TableChanged,
    TableDatabase,
    ValuesRejected,
)

MAX_COLUMNS: Final = 500
# PostgreSQL's limit of a name.
MAX_NAME_BYTES: Final = 63
_MAX_INTEGER: Final = 2**63
_NO_ROOM: Final = object()
# Attempts: other processes may change the table between a read and a write.
_LOOKS: Final = 5

# Position in the chunk, values of the fixed columns, fields.
_Row = tuple[int, Mapping[str, Any], Mapping[str, Any]]


class TableLayout(Protocol):
    """Fixed columns of a table, and their values for an item."""

    fixed: Mapping[str, ColumnType]
    key: Sequence[str]
    # Columns by which a newer row of the same key stays; () where a key has one item only.
    newest: Sequence[str]

    def values(self, item: Item, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of the fixed columns except ``extra``."""

    def fields(self, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the fields that get columns."""


class ItemLayout:
    """One row for each item, or for the latest item of each key.

    Args:
        key_fields: fields whose values identify a row; without them the item's identity does.
    """

    fixed: Mapping[str, ColumnType] = {
        "_id": ColumnType.TEXT,
        "_run": ColumnType.INTEGER,
        "_at": ColumnType.TIME,
        "_url": ColumnType.TEXT,
        "extra": ColumnType.JSON,
    }
    key: Sequence[str] = ("_id",)

    def __init__(self, key_fields: Sequence[str] = ()) -> None:
        self._key_fields = key_fields
        # Dead letters come again after newer items of their key.
        self.newest: Sequence[str] = ("_run", "_at") if key_fields else ()

    def values(self, item: Item, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of the fixed columns. Raises ``NoKey``."""
        identity = identity_of(item, data, self._key_fields)
        return {"_id": identity, "_run": item.run, "_at": item.at, "_url": clean(item.url)}

    def fields(self, data: Mapping[str, Any]) -> Mapping[str, Any]:
        return data


class RecordLayout:
    """Rows of a request group: the records of a stored request, numbered from 0.

    The item's incarnation is ``r<request ID>``, its number the record's plus one. Records that were
    extracted again (``r<request ID>.<extraction>``) replace the rows of their request.
    """

    fixed: Mapping[str, ColumnType] = {
        "request_id": ColumnType.INTEGER,
        "position": ColumnType.INTEGER,
        "at": ColumnType.TIME,
        "url": ColumnType.TEXT,
        "rule": ColumnType.TEXT,
        "meta": ColumnType.JSON,
        "extra": ColumnType.JSON,
    }
    key: Sequence[str] = ("request_id", "position")
    newest: Sequence[str] = ()

    def values(self, item: Item, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of the fixed columns. Raises ``NoKey`` for items of others."""
        number = item.incarnation.removeprefix("r").partition(".")[0]
        if not (number.isascii() and number.isdigit()):
            raise NoKey(f"{item.id} is no record of a stored request")
        return {
            "request_id": int(number),
            "position": item.seq - 1,
            "at": item.at,
            "url": clean(item.url),
            "rule": data.get("_rule", ""),
            "meta": data.get("_meta", {}),
        }

    def fields(self, data: Mapping[str, Any]) -> Mapping[str, Any]:
        return {name: value for name, value in data.items() if name not in ("_rule", "_meta")}


class TableTarget:
    """Table of one delivery. Writes are idempotent."""

    most_items = 1000
    by_place = False

    def __init__(
        self,
        database: TableDatabase,
        table: str,
        layout: TableLayout,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._check = check
        self._database = database
        self._table = table
        self._layout = layout
        # By lower-case name: SQLite treats "Price" and "price" as one.
        self._columns: dict[str, tuple[str, ColumnType]] = {}

    def write(self, chunk: Chunk) -> Mapping[int, str]:
        refused: dict[int, str] = {}
        rows = []
        for place, item in enumerate(chunk.items):
            data = item.data
            try:
                rows.append((place, self._layout.values(item, data), self._layout.fields(data)))
            except NoKey as error:
                refused[place] = str(error)
        return refused | self._write_parts(rows)

    def close(self) -> None:
        self._database.close()
        self._columns = {}

    def _write_parts(self, rows: Sequence[_Row]) -> dict[int, str]:
        try:
            self._write_all(rows)
        except ValuesRejected as error:
            if len(rows) == 1:
                return {rows[0][0]: str(error)}
            middle = len(rows) // 2
            return self._write_parts(rows[:middle]) | self._write_parts(rows[middle:])
        return {}

    def _write_all(self, rows: Sequence[_Row]) -> None:
        if not rows:
            return
        self._check()
        for look in range(_LOOKS):
            try:
                self._write(rows)
            except TableChanged as error:
                self._columns = {}
                if look == _LOOKS - 1:
                    raise ValuesRejected(str(error)) from error
            else:
                return

    def _write(self, rows: Sequence[_Row]) -> None:
        if not self._columns:
            self._look()
        for _place, _fixed, fields in rows:
            self._make_room(fields)
        names = [name for name, _kind in self._columns.values()]
        written: dict[tuple[Any, ...], list[Any]] = {}
        for _place, fixed, fields in rows:
            # A key that comes twice: PostgreSQL refuses both in one statement.
            key = tuple(fixed[name] for name in self._layout.key)
            written[key] = self._row(fixed, fields, names)
        self._database.replace(
            self._table, names, self._layout.key, list(written.values()), newest=self._layout.newest
        )

    def _look(self) -> None:
        found = self._database.columns(self._table)
        if not found:
            self._database.create(self._table, dict(self._layout.fixed), self._layout.key)
            found = self._database.columns(self._table)
        for name, kind in self._layout.fixed.items():
            if name not in found:
                self._database.add(self._table, name, kind)
                found[name] = kind
        self._columns = {name.casefold(): (name, kind) for name, kind in found.items()}

    def _make_room(self, fields: Mapping[str, Any]) -> None:
        for field, value in fields.items():
            name = column_of(field, self._layout.fixed)
            if name is None or value is None or name.casefold() in self._columns:
                continue
            if len(self._columns) < MAX_COLUMNS:
                self._database.add(self._table, name, kind_of(value))
                # Another process may have created it first, with another type.
                kind = self._database.columns(self._table)[name]
                self._columns[name.casefold()] = (name, kind)

    def _row(
        self, fixed: Mapping[str, Any], fields: Mapping[str, Any], names: Sequence[str]
    ) -> list[Any]:
        values = {name: fit(value, self._layout.fixed[name]) for name, value in fixed.items()}
        extra: dict[str, Any] = {}
        for field, value in fields.items():
            name = column_of(field, self._layout.fixed)
            known = self._columns.get(name.casefold()) if name is not None else None
            fitted = fit(value, known[1]) if known is not None and known[0] == name else _NO_ROOM
            if fitted is _NO_ROOM:
                extra[field] = value
            else:
                values[str(name)] = fitted
        values["extra"] = fit(extra, ColumnType.JSON) if extra else None
        return [values.get(name) for name in names]


def column_of(field: str, fixed: Mapping[str, ColumnType]) -> str | None:
    """Return the column of a field: its name, plus "_" for a fixed name; None for ``extra``."""
    if field.casefold() in fixed:
        field += "_"
    if not field.isprintable() or not 0 < len(field.encode("utf-8", "replace")) <= MAX_NAME_BYTES:
        return None
    # psycopg reads % as a placeholder.
    return None if set(field) & set('"%\0') else field


def kind_of(value: Any) -> ColumnType:
    """Return the column type for a value."""
    if isinstance(value, bool):
        return ColumnType.BOOLEAN
    if isinstance(value, int):
        return ColumnType.INTEGER
    if isinstance(value, float | Decimal):
        return ColumnType.NUMBER
    if isinstance(value, datetime):
        return ColumnType.TIME
    if isinstance(value, Mapping | list | tuple):
        return ColumnType.JSON
    return ColumnType.TEXT


def fit(value: Any, kind: ColumnType) -> Any:
    """Return the value for a column of this type, or ``_NO_ROOM``."""
    return None if value is None else _FITS[kind](value)


def _integer(value: Any) -> Any:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and -_MAX_INTEGER <= value < _MAX_INTEGER else _NO_ROOM


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return _NO_ROOM
    try:
        number = float(value)
    except OverflowError:
        return _NO_ROOM
    return number if math.isfinite(number) else _NO_ROOM


def _boolean(value: Any) -> Any:
    return value if isinstance(value, bool) else _NO_ROOM


def _text(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bool | int | float | Decimal):
        return str(value)
    return _NO_ROOM


def _time(value: Any) -> Any:
    if not isinstance(value, datetime):
        return _NO_ROOM
    aware = value if value.tzinfo else value.replace(tzinfo=UTC)
    # Format that both databases read: "2026-11-22 01:02:03.004000+00:00".
    return aware.astimezone(UTC).isoformat(sep=" ", timespec="microseconds")


def _json(value: Any) -> Any:
    return as_json(clean(value)).decode()


_FITS: Final[dict[ColumnType, Callable[[Any], Any]]] = {
    ColumnType.INTEGER: _integer,
    ColumnType.NUMBER: _number,
    ColumnType.BOOLEAN: _boolean,
    ColumnType.TEXT: _text,
    ColumnType.TIME: _time,
    ColumnType.JSON: _json,
}
