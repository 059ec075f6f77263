"""Reads items with DuckDB over the Parquet files that the manifest lists.

DuckDB and pyarrow are imported on use: they take half a second, and every web process imports this.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from apps.datasets.engine.comparing import RunComparison
from apps.datasets.engine.errors import BadItemQuery, gettext_noop
from apps.datasets.engine.filters import FieldNames, order_by, quoted, text_of, where
from apps.datasets.engine.item_types import (
    MOST_ITEMS,
    PLACE,
    FieldValues,
    File,
    ItemPage,
    ItemQuery,
    bad_limit,
    cursor_of,
    item_of,
    offset_of,
    place_of,
)
from apps.datasets.engine.sources import TIMEOUT_SECONDS, with_current_files
from apps.datasets.engine.streaming import BatchStream
from yardkit.items import columns as names

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["TIMEOUT_SECONDS", "ItemReader"]

_FIRST_GROUP: Final = 4


class ItemReader(BatchStream, RunComparison):
    """Pages, counts, streams and statistics of items."""

    # --- items ----------------------------------------------------------------------------------

    @with_current_files
    def page(self, query: ItemQuery) -> ItemPage:
        """Return the next items. Raises ``BadItemQuery`` and ``DataUnavailable``."""
        if not 0 < query.limit <= MOST_ITEMS:
            raise bad_limit()
        if query.newest:
            return self._newest_page(query)
        if query.sort or query.latest:
            return self._sorted_page(query)
        after = place_of(query.after)
        files = [file for file in self._files if _may_follow(file, after)]
        if query.is_plain:
            files = _enough(files, after, query.limit + 1)
        rows: list[Any] = []
        for group in _groups(files):
            source, fields = self._source(group)
            condition = where(query.filters, query.text, fields)
            parameters = [*condition.parameters]
            keyset = ""
            if after is not None:
                keyset = f" AND ({', '.join(PLACE)}) > (?, ?, ?, ?)"
                parameters += after
            rows += self._item_rows(
                group,
                f"FROM {source} WHERE ({condition.text}){keyset} "
                f"ORDER BY {', '.join(PLACE)} LIMIT {query.limit + 1 - len(rows)}",
                parameters,
            )
            if len(rows) > query.limit:
                break
        items = [item_of(row) for row in rows[: query.limit]]
        more = len(rows) > query.limit
        last = cursor_of(items[-1]) if items else query.after
        return ItemPage(items, last if more else "", last)

    def _newest_page(self, query: ItemQuery) -> ItemPage:
        if query.sort or query.latest or query.after:
            raise BadItemQuery(
                gettext_noop("newest cannot be combined with sort, latest or a cursor.")
            )
        files = _last(self._files, query.limit) if query.is_plain else self._files
        source, fields = self._source(files)
        condition = where(query.filters, query.text, fields)
        rows = self._item_rows(
            files,
            f"FROM {source} WHERE {condition.text} "
            f"ORDER BY {', '.join(f'{name} DESC' for name in PLACE)} LIMIT {query.limit}",
            condition.parameters,
        )
        items = [item_of(row) for row in reversed(rows)]
        return ItemPage(items, "", cursor_of(items[-1]) if items else "")

    def _sorted_page(self, query: ItemQuery) -> ItemPage:
        offset = offset_of(query.after)
        source, fields = self._source(self._files)
        condition = where(query.filters, query.text, fields)
        order = order_by(query.sort, fields) if query.sort else ""
        selected = self._selected(source, fields, latest=query.latest)
        rows = self._item_rows(
            self._files,
            f"FROM {selected} WHERE {condition.text} "
            f"ORDER BY {order}{', '.join(PLACE)} LIMIT {query.limit + 1} OFFSET {offset}",
            condition.parameters,
        )
        items = [item_of(row) for row in rows[: query.limit]]
        more = len(rows) > query.limit
        return ItemPage(items, str(offset + query.limit) if more else "")

    @with_current_files
    def count(self, query: ItemQuery) -> int:
        """Return the number of items of a query from its cursor on.

        Without conditions and cursor it is known from the manifest.
        """
        if not (query.filters or query.text or query.latest or query.after):
            return sum(file.items for file in self._files)
        is_sorted = bool(query.sort) or query.latest
        after = None if is_sorted else place_of(query.after)
        source, fields = self._source([file for file in self._files if _may_follow(file, after)])
        condition = where(query.filters, query.text, fields)
        selected = self._selected(source, fields, latest=query.latest)
        text = f"SELECT count(*) FROM {selected} WHERE ({condition.text})"  # noqa: S608 - bound
        parameters = list(condition.parameters)
        if after is not None:
            text += f" AND ({', '.join(PLACE)}) > (?, ?, ?, ?)"
            parameters += after
        ((number,),) = self._rows(text, parameters)
        return max(0, int(number) - (offset_of(query.after) if is_sorted else 0))

    def batches(
        self, query: ItemQuery, *, fields: Sequence[str] | None = None, rows: int = 10_000
    ) -> Iterator[pa.RecordBatch]:
        """Yield the items of a query in flat memory, at most ``rows`` at a time.

        Columns: those of ``fields`` under the fields' names, several types as text; without
        ``fields`` the items as they came, in one column. A cursor of ``page`` is where it begins.
        Without an order of the query the items come as they were stored.
        """
        batches = self._stream(query, fields, rows)
        with self._guarded():
            yield from batches

    @with_current_files
    def _stream(
        self, query: ItemQuery, fields: Sequence[str] | None, rows: int
    ) -> Iterator[pa.RecordBatch]:
        after = None if query.sort or query.latest else place_of(query.after)
        source, known = self._source([file for file in self._files if _may_follow(file, after)])
        condition = where(query.filters, query.text, known)
        selected = self._selected(source, known, latest=query.latest)
        chosen = (
            names.ITEM if fields is None else ", ".join(_chosen(field, known) for field in fields)
        )
        parameters = list(condition.parameters)
        text = f"SELECT {chosen} FROM {selected} WHERE ({condition.text})"  # noqa: S608 - bound
        if query.sort or query.latest:
            # The rows of files are in their order; only others are sorted, which takes memory.
            order = order_by(query.sort, known) if query.sort else ""
            text += f" ORDER BY {order}{', '.join(PLACE)} OFFSET {offset_of(query.after)}"
        elif after is not None:
            text += f" AND ({', '.join(PLACE)}) > (?, ?, ?, ?)"
            parameters += after
        with self._guarded():
            # Without a limit of time: the reader decides how fast it takes.
            batches: Any = self._open().sql(text, params=parameters).to_arrow_reader(rows)
            # Files in a bucket are opened by the first one.
            first = next(batches, None)
            return iter(()) if first is None else itertools.chain((first,), batches)

    def check_fields(self, fields: Sequence[str]) -> None:
        """Raise ``BadItemQuery`` for an unknown field."""
        known = FieldNames(self._columns, [])
        for field in fields:
            known.of(field)

    @property
    def fields(self) -> list[str]:
        """Return the fields of the dataset, in the order in which they appeared."""
        return self._columns.fields

    # --- statistics -----------------------------------------------------------------------------

    @with_current_files
    def values(self, field: str, query: ItemQuery, *, top: int = 20, bins: int = 20) -> FieldValues:
        """Return statistics of a field over the items of a query."""
        source, fields = self._source(self._files)
        condition = where(query.filters, query.text, fields)
        selected = self._selected(source, fields, latest=query.latest)
        place = f"FROM {selected} WHERE {condition.text}"
        text = text_of(field, fields)
        number = f"TRY_CAST({text} AS DOUBLE)"
        columns = fields.of(field)
        numeric = bool(columns) and all(column.type in ("long", "double") for column in columns)
        ((count, distinct, low, high, mean, least, most),) = self._rows(
            f"SELECT count({text}), approx_count_distinct({text}), min({text}), max({text}), "
            f"avg({number}), min({number}), max({number}) {place}",
            condition.parameters,
        )
        frequent = self._rows(
            f"SELECT {text} AS value, count(*) AS number {place} AND {text} IS NOT NULL "
            f"GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {int(top)}",
            condition.parameters,
        )
        histogram: list[tuple[float, float, int]] = []
        if numeric and count and most > least:
            width = (most - least) / bins
            rows = self._rows(
                f"SELECT least(floor(({number} - ?) / ?), {bins - 1}) AS bin, count(*) {place} "
                f"AND {text} IS NOT NULL GROUP BY 1 ORDER BY 1",
                [least, width, *condition.parameters],
            )
            counts = {int(place): number for place, number in rows}
            histogram = [
                (least + width * place, least + width * (place + 1), counts.get(place, 0))
                for place in range(bins)
            ]
        return FieldValues(
            count=count,
            distinct=min(distinct, count),
            low=f"{least:g}" if numeric and count else low,
            high=f"{most:g}" if numeric and count else high,
            mean=mean if numeric else None,
            top=[(str(value), number) for value, number in frequent],
            bins=histogram,
        )

    @with_current_files
    def groups(
        self, field: str, samples: Sequence[str], query: ItemQuery, *, most: int
    ) -> list[tuple[Any, ...]]:
        """Return the most frequent values of a field with their number of items.

        Each with the values of ``samples`` in one of its items, as texts.
        """
        source, fields = self._source(self._files)
        condition = where(query.filters, query.text, fields)
        text = text_of(field, fields)
        shown = "".join(f", coalesce(any_value({text_of(name, fields)}), '')" for name in samples)
        place = f"FROM {source} WHERE ({condition.text}) AND {text} IS NOT NULL"
        return self._rows(
            f"SELECT {text}, count(*){shown} {place} GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {most}",
            condition.parameters,
        )


def _chosen(field: str, fields: FieldNames) -> str:
    columns = fields.of(field)
    if len(columns) == 1:
        return f"{quoted(columns[0].column)} AS {quoted(field)}"
    return f"{text_of(field, fields)} AS {quoted(field)}"


def _may_follow(file: File, after: list[Any] | None) -> bool:
    return after is None or (file.run, file.last_batch) >= (after[0], after[1])


def _groups(files: Sequence[File]) -> Iterator[list[File]]:
    """Yield files in groups, each in the order of storing after the one before, twice as large.

    A page that is full after some files need not look at the others.
    """
    size = _FIRST_GROUP
    group: list[File] = []
    end = (0, 0)
    for file in files:
        if len(group) >= size and (file.run, file.first_batch) > end:
            yield group
            group, size = [], size * 2
        group.append(file)
        end = max(end, (file.run, file.last_batch))
    # An unknown field is an error without files, too.
    yield group


def _enough(files: Sequence[File], after: list[Any] | None, wanted: int) -> list[File]:
    """Return the first files that hold the wanted number of items for certain."""
    chosen: list[File] = []
    certain = 0
    limit: tuple[int, int] | None = None
    for file in files:
        if limit is not None and (file.run, file.first_batch) > limit:
            break
        chosen.append(file)
        if after is None or (file.run, file.first_batch) > (after[0], after[1]):
            certain += file.items
            if certain >= wanted and limit is None:
                # Later files may begin before this one ends.
                limit = max((known.run, known.last_batch) for known in chosen)
    return chosen


def _last(files: Sequence[File], wanted: int) -> list[File]:
    """Return the last files, which hold the wanted number of items for certain."""
    chosen: list[File] = []
    certain = 0
    begin: tuple[int, int] | None = None
    for file in sorted(files, key=lambda file: (file.run, file.last_batch), reverse=True):
        if begin is not None and (file.run, file.last_batch) < begin:
            break
        chosen.append(file)
        certain += file.items
        if certain >= wanted and begin is None:
            # Earlier files may end after this one begins.
            begin = min((known.run, known.first_batch) for known in chosen)
    return chosen
