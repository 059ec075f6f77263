"""Records as rows of a table, with a column for each field, added when the field first appears.

Fixed columns: ``request_id`` and ``position``, the primary key, by which a request that is leased
again replaces its records; ``at``, ``url``, ``rule``, ``meta``; and ``extra`` for values that have
no column or do not fit its type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

from apps.requeststore.sinks.base import RequestRecords, as_json, clean, moment
from apps.requeststore.sinks.databases import (
    ColumnType,
    RecordsDatabase,
    TableChanged,
    ValuesRejected,
)

KEY: Final = ("request_id", "position")
FIXED: Final = {
    "request_id": ColumnType.INTEGER,
    "position": ColumnType.INTEGER,
    "at": ColumnType.TIME,
    "url": ColumnType.TEXT,
    "rule": ColumnType.TEXT,
    "meta": ColumnType.JSON,
    "extra": ColumnType.JSON,
}
MAX_COLUMNS: Final = 500
# PostgreSQL's limit of a name.
MAX_NAME_BYTES: Final = 63
_MAX_INTEGER: Final = 2**63
_NO_ROOM: Final = object()
# Attempts: other processes may change the table between a read and a write.
_LOOKS: Final = 5


class TableSink:
    """Records of one biz. Writes are idempotent."""

    def __init__(self, database: RecordsDatabase, table: str) -> None:
        self._database = database
        self._table = table
        # By lower-case name: SQLite treats "Price" and "price" as one.
        self._columns: dict[str, tuple[str, ColumnType]] = {}

    def write(self, batch: Sequence[RequestRecords]) -> dict[int, str]:
        try:
            self._write_all(batch)
        except ValuesRejected as error:
            if len(batch) == 1:
                return {batch[0].request_id: str(error)}
            refused: dict[int, str] = {}
            for one in batch:
                refused |= self.write([one])
            return refused
        return {}

    def close(self) -> None:
        self._database.close()
        self._columns = {}

    def _write_all(self, batch: Sequence[RequestRecords]) -> None:
        if not any(one.rows or one.again for one in batch):
            return
        for look in range(_LOOKS):
            try:
                self._write(batch)
            except TableChanged as error:
                self._columns = {}
                if look == _LOOKS - 1:
                    raise ValuesRejected(str(error)) from error
            else:
                return

    def _write(self, batch: Sequence[RequestRecords]) -> None:
        if not self._columns:
            self._look()
        for one in batch:
            for record in one.rows:
                self._make_room(record)
        names = [name for name, _kind in self._columns.values()]
        rows = [
            self._row(one, position, names) for one in batch for position in range(len(one.rows))
        ]
        again = [one.request_id for one in batch if one.again]
        self._database.replace(self._table, names, KEY, rows, first_delete=again)

    def _look(self) -> None:
        found = self._database.columns(self._table)
        if not found:
            self._database.create(self._table, dict(FIXED), KEY)
            found = self._database.columns(self._table)
        for name, kind in FIXED.items():
            if name not in found:
                self._database.add(self._table, name, kind)
                found[name] = kind
        self._columns = {name.casefold(): (name, kind) for name, kind in found.items()}

    def _make_room(self, record: Mapping[str, Any]) -> None:
        for field, value in record.items():
            name = column_of(field)
            if name is None or value is None or name.casefold() in self._columns:
                continue
            if len(self._columns) < MAX_COLUMNS:
                self._database.add(self._table, name, kind_of(value))
                # Another process may have created it first, with another type.
                kind = self._database.columns(self._table)[name]
                self._columns[name.casefold()] = (name, kind)

    def _row(self, one: RequestRecords, position: int, names: Sequence[str]) -> list[Any]:
        values: dict[str, Any] = {
            "request_id": one.request_id,
            "position": position,
            "at": fit(moment(one.fetched_at), ColumnType.TIME),
            "url": clean(one.url),
            "rule": one.rule,
            "meta": fit(one.meta, ColumnType.JSON),
        }
        extra: dict[str, Any] = {}
        for field, value in one.rows[position].items():
            name = column_of(field)
            known = self._columns.get(name.casefold()) if name is not None else None
            fitted = fit(value, known[1]) if known is not None and known[0] == name else _NO_ROOM
            if fitted is _NO_ROOM:
                extra[field] = value
            else:
                values[str(name)] = fitted
        values["extra"] = fit(extra, ColumnType.JSON) if extra else None
        return [values.get(name) for name in names]


def column_of(field: str) -> str | None:
    """Return the column of a field: its name, plus "_" for a fixed name; None for ``extra``."""
    if field.casefold() in FIXED:
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
