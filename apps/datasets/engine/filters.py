"""Filters and orders of items, as SQL of DuckDB. Values are bound, names are quoted."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import re2

from apps.datasets.engine.errors import BadItemQuery, gettext_noop
from yardkit.items import columns as names
from yardkit.items.columns import Column, Columns, ColumnType

# System columns by which people may filter and sort.
_SYSTEM_TYPES: Final[Mapping[str, ColumnType]] = {
    names.RUN: ColumnType.LONG,
    names.SEQ: ColumnType.LONG,
    names.AT: ColumnType.STRING,
    names.URL: ColumnType.STRING,
    names.FLAGS: ColumnType.STRING,
    names.INCARNATION: ColumnType.STRING,
}
_NUMBERS: Final = (ColumnType.LONG, ColumnType.DOUBLE)
_TEXTS: Final = (ColumnType.STRING, ColumnType.JSON)
_TRUTH: Final = {"true": True, "false": False, "1": True, "0": False}
_MAX_LONG: Final = 2**63


class FilterOp(enum.StrEnum):
    """Comparison of a field with a value."""

    EQUALS = "equals"
    NOT_EQUALS = "not_equals"
    CONTAINS = "contains"
    AT_LEAST = "at_least"
    AT_MOST = "at_most"
    MISSING = "missing"
    PRESENT = "present"


class ItemFilter(msgspec.Struct, frozen=True):
    """One condition. ``value`` is not used by ``missing`` and ``present``."""

    field: str
    op: FilterOp
    value: str | int | float | bool | None = None


NO_VALUE: Final = (FilterOp.MISSING, FilterOp.PRESENT)
_OPERATORS: Final = frozenset(op.value for op in FilterOp)


def read_filter(text: str) -> ItemFilter:
    """Return the filter that ``field:operator:value`` describes. Raises ``BadItemQuery``.

    A field may contain colons if no operator follows one of them earlier.
    """
    start = 0
    while (colon := text.find(":", start)) >= 0:
        name, second, value = text[colon + 1 :].partition(":")
        if name in _OPERATORS:
            op = FilterOp(name)
            if colon == 0 or (op not in NO_VALUE and not second):
                raise BadItemQuery(
                    gettext_noop("%(text)s: the field or the value is missing."), text=text[:100]
                )
            return ItemFilter(text[:colon], op, None if op in NO_VALUE else value)
        start = colon + 1
    raise BadItemQuery(
        gettext_noop("%(text)s: use field:operator:value, with an operator of %(ops)s."),
        text=text[:100],
        ops=", ".join(op.value for op in FilterOp),
    )


def written(condition: ItemFilter) -> str:
    """Return a filter as ``read_filter`` reads it."""
    if condition.op in NO_VALUE:
        return f"{condition.field}:{condition.op.value}"
    return f"{condition.field}:{condition.op.value}:{condition.value}"


class Sql(msgspec.Struct, frozen=True):
    """A piece of SQL and its parameters."""

    text: str
    parameters: tuple[Any, ...] = ()


def quoted(name: str) -> str:
    """Return a quoted identifier."""
    return '"' + name.replace('"', '""') + '"'


class FieldNames:
    """Columns of fields that the files at hand really have."""

    def __init__(self, columns: Columns, present: Sequence[str]) -> None:
        self._columns = columns
        self._present = set(present)

    def of(self, field: str) -> list[Column]:
        """Return the columns of a field. Raises ``BadItemQuery`` for an unknown one."""
        if field in _SYSTEM_TYPES:
            return [Column(field, field, _SYSTEM_TYPES[field])]
        columns = self._columns.of_field(field)
        if not columns:
            raise BadItemQuery(gettext_noop("There is no field “%(field)s”."), field=field)
        return [column for column in columns if column.column in self._present]

    def texts(self) -> list[Column]:
        """Return every column that holds text."""
        return [
            column
            for column in self._columns
            if column.type in _TEXTS and column.column in self._present
        ]

    def all(self) -> list[Column]:
        """Return every column of a field."""
        return [column for column in self._columns if column.column in self._present]


def where(filters: Sequence[ItemFilter], text: str, fields: FieldNames) -> Sql:
    """Return the condition of a query, ``TRUE`` without any."""
    parts = [_condition(condition, fields) for condition in filters]
    if text:
        parts.append(_any([_contains(column, text) for column in fields.texts()]))
    if not parts:
        return Sql("TRUE")
    return Sql(
        " AND ".join(f"({part.text})" for part in parts),
        tuple(value for part in parts for value in part.parameters),
    )


def order_by(sort: str, fields: FieldNames) -> str:
    """Return the terms of an order by a field, such as ``price`` or ``-price``; nulls are last."""
    field, direction = (sort[1:], "DESC") if sort.startswith("-") else (sort, "ASC")
    columns = fields.of(field)
    return "".join(f"{quoted(column.column)} {direction} NULLS LAST, " for column in columns)


def text_of(field: str, fields: FieldNames) -> str:
    """Return an expression for a field as text; NULL if no file has it."""
    columns = fields.of(field)
    if not columns:
        return "NULL::VARCHAR"
    casts = ", ".join(f"CAST({quoted(column.column)} AS VARCHAR)" for column in columns)
    return f"coalesce({casts})"


def _condition(condition: ItemFilter, fields: FieldNames) -> Sql:
    columns = fields.of(condition.field)
    present = " OR ".join(f"{quoted(column.column)} IS NOT NULL" for column in columns)
    match condition.op:
        case FilterOp.PRESENT:
            return Sql(present or "FALSE")
        case FilterOp.MISSING:
            return Sql(f"NOT ({present})" if present else "TRUE")
        case FilterOp.CONTAINS:
            return _any([_contains(column, _text(condition)) for column in columns])
        case FilterOp.EQUALS:
            return _any([_compared(column, "=", condition) for column in columns])
        case FilterOp.NOT_EQUALS:
            # What has no value differs from every value.
            equal = _any([_compared(column, "=", condition) for column in columns])
            return Sql(f"NOT coalesce({equal.text}, FALSE)", equal.parameters)
        case FilterOp.AT_LEAST:
            return _any([_compared(column, ">=", condition) for column in columns])
        case FilterOp.AT_MOST:
            return _any([_compared(column, "<=", condition) for column in columns])


def _any(parts: Sequence[Sql]) -> Sql:
    if not parts:
        return Sql("FALSE")
    return Sql(
        " OR ".join(f"({part.text})" for part in parts),
        tuple(value for part in parts for value in part.parameters),
    )


def _text(condition: ItemFilter) -> str:
    if condition.value is None:
        raise BadItemQuery(
            gettext_noop("The filter of “%(field)s” needs a value."), field=condition.field
        )
    return str(condition.value)


def _contains(column: Column, text: str) -> Sql:
    name = quoted(column.column)
    if column.type not in _TEXTS or column.column == names.AT:
        name = f"CAST({name} AS VARCHAR)"
    if not any(letter.isalpha() for letter in text):
        # No letters, no cases: twice as fast.
        return Sql(f"contains({name}, ?)", (text,))
    # A third of the time of ILIKE.
    return Sql(f"regexp_matches({name}, ?, 'i')", (re2.escape(text),))


def _compared(column: Column, operator: str, condition: ItemFilter) -> Sql:
    """Compare a column with the value read as the column's type; FALSE if it is none."""
    name, value = quoted(column.column), _text(condition)
    if column.column == names.AT:
        return Sql(f"{name} {operator} TRY_CAST(? AS TIMESTAMPTZ)", (value,))
    if column.type in _NUMBERS:
        number = _number(value)
        if number is None:
            return Sql("FALSE")
        return Sql(f"{name} {operator} ?", (number,))
    if column.type is ColumnType.BOOLEAN:
        truth = _TRUTH.get(value.casefold())
        return Sql("FALSE") if truth is None else Sql(f"{name} {operator} ?", (truth,))
    return Sql(f"{name} {operator} ?", (value,))


def _number(value: str) -> int | float | None:
    try:
        number: int | float = int(value)
    except ValueError:
        try:
            number = float(value)
        except ValueError:
            return None
    if isinstance(number, int) and not -_MAX_LONG <= number < _MAX_LONG:
        number = float(number) if abs(number) < 10**300 else math.inf
    return number if not isinstance(number, float) or math.isfinite(number) else None
