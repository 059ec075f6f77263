"""In how many items each field had a value, counted without a word in the spider."""

from __future__ import annotations

from typing import Any, Final

# So many names are counted, those that come first: an item keyed by dates or ids has no end.
MOST_FIELDS: Final = 200
_NAME_CHARACTERS: Final = 100


class FieldCoverage:
    """Counts items by the fields that have a value; of a dict inside an item ``outer.inner``, too.

    None, an empty text, list or dict is no value; 0 and False are. What lies deeper, and the
    insides of lists, is not looked at.
    """

    def __init__(self) -> None:
        self._outer: dict[str, int] = {}
        self._inner: dict[str, dict[str, int]] = {}
        self._names = 0

    def add(self, item: dict[str, Any]) -> None:
        """One more item. Never raises: a value that cannot be asked, such as an array, is one."""
        # This runs for every item: one plain loop, calls only for names that are new.
        counts = self._outer
        for name, value in item.items():
            try:
                if not value and value != 0:
                    continue
            except Exception:  # noqa: BLE001, S110 - somebody's own __bool__ or __eq__
                pass
            if name in counts:
                counts[name] += 1
            elif not self._meet(name, counts):
                continue
            if value.__class__ is dict:
                self._add_inner(name, value)

    def counts(self) -> dict[str, int]:
        """By name; a field of which no item had a value is not there."""
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
        """Count a new name, if it is one that a report can carry and there is room."""
        if self._names >= MOST_FIELDS:
            return False
        if not isinstance(name, str) or not 0 < len(name) <= _NAME_CHARACTERS:
            return False
        # Half characters and NUL fit into no message and no database.
        if not name.isprintable():
            return False
        counts[name] = 1
        self._names += 1
        return True
