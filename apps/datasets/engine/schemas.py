"""JSON Schema of items as they were so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from apps.datasets.engine.accounting import merged_fields
from yardkit.items.columns import ColumnType
from yardkit.items.segments import FieldStatistics

_TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    ColumnType.BOOLEAN: ("boolean",),
    ColumnType.LONG: ("integer",),
    ColumnType.DOUBLE: ("number",),
    ColumnType.STRING: ("string",),
    ColumnType.JSON: ("array", "object"),
}


def inferred_schema(runs: Iterable[tuple[int, Mapping[str, Any]]]) -> dict[str, Any]:
    """Return a schema that the items of some runs match; {} without items.

    ``runs``: number of stored items and ``DatasetRun.fields`` of each. A field is required if
    every item has a value in it, and may be null otherwise.
    """
    stored, merged = 0, dict[str, Any]()
    for count, fields in runs:
        stored += count
        known = {name: _read(values) for name, values in fields.items()}
        merged = merged_fields(merged, known)
    if not stored:
        return {}
    properties: dict[str, Any] = {}
    required = []
    for name, values in merged.items():
        found = _read(values)
        kinds = [kind for column in sorted(found.types) for kind in _TYPES[column]]
        if "number" in kinds and "integer" in kinds:
            kinds.remove("integer")
        if found.count >= stored:
            required.append(name)
        else:
            kinds.append("null")
        properties[name] = {"type": kinds[0] if len(kinds) == 1 else kinds}
    return {"type": "object", "properties": properties, "required": required}


def _read(values: Mapping[str, Any]) -> FieldStatistics:
    return msgspec.convert(values, FieldStatistics)
