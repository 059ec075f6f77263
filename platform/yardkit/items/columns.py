"""Rules by which the fields of items become columns of Parquet files and tables.

A field's column has the field's name and the type of its first values: boolean, long (64 bit),
double, string, or json (lists and objects, as text). A later value of another type stands in
``<field>__<type>``, except that a long fits into a column of doubles; a whole number beyond 64 bit
is a string. A column whose name differs from another's only by case gets ``_2``, ``_3``, ...: SQL
engines do not tell them apart. A dot in a name becomes ``_``. Only ``_item``, the item's JSON as it
came, holds fields named like a system column, with names that are empty, unprintable or longer
than ``MAX_NAME_CHARACTERS``, and those beyond ``MAX_COLUMNS``.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

MAX_COLUMNS: Final = 500
MAX_NAME_CHARACTERS: Final = 200

RUN: Final = "_run"
DAY: Final = "_day"
INCARNATION: Final = "_incarnation"
SEQ: Final = "_seq"
AT: Final = "_at"
BATCH: Final = "_batch"
URL: Final = "_url"
FLAGS: Final = "_flags"
ITEM: Final = "_item"
# Columns of every file. A segment has no ``_batch``: its batch stands in the manifest.
SYSTEM: Final = (RUN, DAY, INCARNATION, SEQ, AT, BATCH, URL, FLAGS, ITEM)

# Largest whole number of 64 bit.
LONGEST: Final = 2**63 - 1


class ColumnType(enum.StrEnum):
    """Type of a column."""

    BOOLEAN = "boolean"
    LONG = "long"
    DOUBLE = "double"
    STRING = "string"
    # A string that holds a list or an object.
    JSON = "json"


class Column(msgspec.Struct, frozen=True):
    """One column and the field whose values it holds."""

    field: str
    column: str
    type: ColumnType


KINDS: Final[Mapping[type, ColumnType]] = {
    bool: ColumnType.BOOLEAN,
    int: ColumnType.LONG,
    float: ColumnType.DOUBLE,
    str: ColumnType.STRING,
    list: ColumnType.JSON,
    dict: ColumnType.JSON,
}


def type_of(value: Any) -> ColumnType:
    """Return the type of a value that JSON can hold, other than null."""
    if type(value) is int and not -LONGEST - 1 <= value <= LONGEST:
        return ColumnType.STRING
    return KINDS[type(value)]


class Columns:
    """Columns of one dataset in the order in which they appeared; grows with its items.

    ``changed`` is true once a column was added.
    """

    def __init__(self, stored: Sequence[Mapping[str, str]] = ()) -> None:
        self.changed = False
        self._columns: list[Column] = []
        self._by_field: dict[str, list[Column]] = {}
        self._names = set(SYSTEM)
        for column in msgspec.convert(stored, list[Column]):
            self._add(column)

    def __iter__(self) -> Iterator[Column]:
        return iter(self._columns)

    def of_field(self, field: str) -> Sequence[Column]:
        """Return the columns of a field, the first one first; empty for an unknown field."""
        return self._by_field.get(field, ())

    @property
    def fields(self) -> list[str]:
        """Return the fields in order."""
        return list(self._by_field)

    def stored(self) -> list[dict[str, str]]:
        """Return the columns for the constructor."""
        return [
            {"field": column.field, "column": column.column, "type": column.type.value}
            for column in self._columns
        ]

    def may_hold(self, field: str) -> bool:
        """Return whether a field has a column or can get one."""
        return field in self._by_field or self._is_free(field)

    def target(self, field: str, kind: ColumnType) -> Column | None:
        """Return the column for values of this type, added if needed; None: only in ``_item``."""
        known = self._by_field.get(field, [])
        for column in known:
            if column.type is kind:
                return column
        if kind is ColumnType.LONG and known and known[0].type is ColumnType.DOUBLE:
            return known[0]
        if not self._is_free(field):
            return None
        name = field.replace(".", "_")
        if known:
            name = f"{name}__{kind.value}"
        column = Column(field, self._free(name), kind)
        self._add(column)
        self.changed = True
        return column

    def _is_free(self, field: str) -> bool:
        return len(self._columns) < MAX_COLUMNS and _is_name(field)

    def _free(self, name: str) -> str:
        free, number = name, 1
        while free.casefold() in self._names:
            number += 1
            free = f"{name}_{number}"
        return free

    def _add(self, column: Column) -> None:
        self._columns.append(column)
        self._by_field.setdefault(column.field, []).append(column)
        self._names.add(column.column.casefold())


def _is_name(field: str) -> bool:
    return (
        0 < len(field) <= MAX_NAME_CHARACTERS
        and field.isprintable()
        and field.casefold() not in SYSTEM
    )
