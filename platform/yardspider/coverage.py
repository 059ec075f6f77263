"""Counts in how many items each field had a value."""

from __future__ import annotations

from typing import Any, Final

# Limit of counted fields, first come first counted: items keyed by dates or ids have endless
# ones.
MOST_FIELDS: Final = 200
_NAME_CHARACTERS: Final = 100


class FieldCoverage:
    """Count items by the fields that have a value; a dict's fields count as ``outer.inner``.

    None and empty texts, lists and dicts are no values; 0 and False are. Deeper levels and the
    contents of lists are not counted.
    """

    def __init__(self) -> None:
        self._outer: dict[str, int] = {}
        self._inner: dict[str, dict[str, int]] = {}
        self._names = 0

    def add(self, item: dict[str, Any]) -> None:
        """Count one item. Never raises: a value without a truth value, such as an array, counts."""
        # This runs for every item: one plain loop, calls only for names that are new.
        counts = self._outer
        for name, value in item.items():
            try:
                if not value and value != 0:
                    continue
            except Exception:  # noqa: BLE001, S110 - a foreign __bool__ or __eq__
                pass
            if name in counts:
                counts[name] += 1
            elif not self._meet(name, counts):
                continue
            if value.__class__ is dict:
                self._add_inner(name, value)

    def counts(self) -> dict[str, int]:
        """Return the counts by field; a field that had no value in any item is missing."""
        found = dict(self._outer)
        for outer, inner in self._inner.items():
            found |= {f"{outer}.{name}": count for name, count in inner.items()}
        return found

    def _add_inner(self, outer: str, item: dict[str, Any]) -> None:
        counts = self._inner.get(outer)
        if counts is None:
            counts = self._inner[outer] = {}
        for name, value in item.items():
            try:
                if not value and value != 0:
                    continue
            except Exception:  # noqa: BLE001, S110 - as in add
                pass
            if name in counts:
                counts[name] += 1
            else:
                self._meet(name, counts)

    def _meet(self, name: object, counts: dict[str, int]) -> bool:
        """Start to count a new field, if a report can carry its name and there is room."""
        if self._names >= MOST_FIELDS:
            return False
        if not isinstance(name, str) or not 0 < len(name) <= _NAME_CHARACTERS:
            return False
        # Lone surrogates and NUL fit into no message and no database.
        if not name.isprintable():
            return False
        counts[name] = 1
        self._names += 1
        return True
