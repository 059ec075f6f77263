"""Compares runs of a dataset by its key, and finds what a key was over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from apps.datasets.engine.errors import BadItemQuery, gettext_noop
from apps.datasets.engine.filters import FieldNames, text_of
from apps.datasets.engine.item_types import (
    ITEM_COLUMNS,
    MOST_ITEMS,
    PLACE,
    ComparedItem,
    Comparison,
    Item,
    bad_limit,
    item_of,
    offset_of,
)
from apps.datasets.engine.sources import ItemSource, with_current_files
from yardkit.items import columns as names

if TYPE_CHECKING:
    pass


class RunComparison(ItemSource):
    """Queries by the key of a dataset."""

    @with_current_files
    def compare(self, old: int, new: int) -> Comparison:
        """Compare two runs by the key fields. Raises ``BadItemQuery`` without a key."""
        joined = self._joined(old, new)
        ((added, removed, changed, equal),) = self._rows(
            "SELECT count(*) FILTER (kind = 'added'), count(*) FILTER (kind = 'removed'), "  # noqa: S608 - views
            f"count(*) FILTER (kind = 'changed'), count(*) FILTER (kind = 'equal') FROM {joined}"
        )
        without = doubled = 0
        for run in (old, new):
            source, fields = self._source(self._of_run(run))
            keys = [text_of(field, fields) for field in self._key()]
            present = " AND ".join(f"{key} IS NOT NULL" for key in keys)
            ((items, keyed, distinct),) = self._rows(
                f"SELECT count(*), count(*) FILTER ({present}), "  # noqa: S608 - quoted names
                f"count(DISTINCT ({', '.join(keys)},)) FILTER ({present}) FROM {source}"
            )
            without += items - keyed
            doubled += keyed - distinct
        return Comparison(
            added=added,
            removed=removed,
            changed=changed,
            equal=equal,
            without_key=without,
            duplicates=doubled,
        )

    @with_current_files
    def compared(
        self, old: int, new: int, kind: str, *, limit: int = 50, after: str = ""
    ) -> tuple[list[ComparedItem], str]:
        """Return items that were added, removed, changed or are equal, and the next cursor."""
        if kind not in ("added", "removed", "changed", "equal"):
            raise BadItemQuery(
                gettext_noop("kind is added, removed, changed or equal, not “%(kind)s”."),
                kind=kind[:50],
            )
        if not 0 < limit <= MOST_ITEMS:
            raise bad_limit()
        offset = offset_of(after)
        joined = self._joined(old, new)
        rows = self._rows(
            f"SELECT keys, old_item, new_item FROM {joined} WHERE kind = ? "  # noqa: S608 - views
            f"ORDER BY keys LIMIT {limit + 1} OFFSET {offset}",
            [kind],
        )
        items = [
            ComparedItem(list(keys), _decoded(before), _decoded(now))
            for keys, before, now in rows[:limit]
        ]
        return items, str(offset + limit) if len(rows) > limit else ""

    @with_current_files
    def duplicates(self) -> int:
        """Return how many items have the key of an earlier one."""
        source, fields = self._source(self._files)
        keys = [text_of(field, fields) for field in self._key()]
        present = " AND ".join(f"{key} IS NOT NULL" for key in keys)
        ((keyed, distinct),) = self._rows(
            f"SELECT count(*), count(DISTINCT ({', '.join(keys)},)) FROM {source} "  # noqa: S608 - quoted names
            f"WHERE {present}"
        )
        return int(keyed - distinct)

    @with_current_files
    def history(self, key: Sequence[str], *, limit: int = MOST_ITEMS) -> list[Item]:
        """Return the items of one key over all runs, the newest first."""
        source, fields = self._source(self._files)
        if len(key) != len(self._key()):
            raise BadItemQuery(
                gettext_noop("The key has %(count)s fields: %(fields)s."),
                count=len(self._key()),
                fields=", ".join(self._key()),
            )
        matches = " AND ".join(f"{text_of(field, fields)} = ?" for field in self._key())
        rows = self._rows(
            f"SELECT {ITEM_COLUMNS} FROM {source} WHERE {matches} "  # noqa: S608 - bound
            f"ORDER BY {', '.join(f'{name} DESC' for name in PLACE)} LIMIT {int(limit)}",
            list(key),
        )
        return [item_of(row) for row in rows]

    def _joined(self, old: int, new: int) -> str:
        """Return a view of the keys of two runs with what became of them."""
        sides = []
        for run in (old, new):
            source, fields = self._source(self._of_run(run))
            keys = [text_of(field, fields) for field in self._key()]
            present = " AND ".join(f"{key} IS NOT NULL" for key in keys)
            listed = ", ".join(keys)
            # Values alone: the order of an item's fields means nothing.
            values = ", ".join(
                f"{text_of(field, fields)}" if field in fields_of(fields) else "NULL::VARCHAR"
                for field in self._columns.fields
            )
            sides.append(
                f"(SELECT [{listed}] AS keys, {names.ITEM} AS item, "  # noqa: S608 - quoted names
                f"hash({values or 'NULL'}) AS content FROM {source} WHERE {present} "
                f"QUALIFY row_number() OVER (PARTITION BY {listed} "
                f"ORDER BY {', '.join(PLACE)}) = 1)"
            )
        name = self._name()
        self._run(
            f"CREATE TEMP VIEW {name} AS SELECT coalesce(n.keys, o.keys) AS keys, "  # noqa: S608 - quoted names
            "o.item AS old_item, n.item AS new_item, "
            "CASE WHEN o.keys IS NULL THEN 'added' WHEN n.keys IS NULL THEN 'removed' "
            "WHEN o.content = n.content THEN 'equal' ELSE 'changed' END AS kind "
            f"FROM {sides[0]} o FULL OUTER JOIN {sides[1]} n ON o.keys = n.keys"
        )
        return name


def fields_of(fields: FieldNames) -> set[str]:
    """Return the fields that have a column in the files at hand."""
    return {column.field for column in fields.all()}


def _decoded(text: str | None) -> dict[str, Any] | None:
    return None if text is None else msgspec.json.decode(text)
