"""Reads items in the order of their batches, for deliveries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final

from apps.datasets.engine.item_types import ITEM_COLUMNS, File, Item, item_of
from apps.datasets.engine.sources import ItemSource, with_current_files
from yardkit.items import columns as names

# About as much is read at a time: it is sorted in memory.
WINDOW_ITEMS: Final = 20_000
WINDOW_BYTES: Final = 32 * 1024 * 1024
# JSON of one chunk; a larger single item goes alone.
CHUNK_BYTES: Final = 8 * 1024 * 1024


class BatchStream(ItemSource):
    """Streams and counts of items by batch."""

    def since(
        self, batch: int, offset: int, rows: int, *, until: int | None = None, apart: bool = False
    ) -> Iterator[tuple[int, int, list[Item]]]:
        """Yield the items from a batch on, without the first ``offset`` of that batch.

        Yields (batch of the last item, number of its items that are then taken, items), at most
        ``rows`` of about ``CHUNK_BYTES``. ``until``: the last batch. ``apart``: never items of two
        batches together.
        """
        end = max((file.last_batch for file in self._files), default=0)
        end = end if until is None else min(end, until)
        taken, last = offset, batch
        while (window := _window(self._files, batch, end)) is not None:
            begin, limit = window
            for items in cut(self._between(begin, limit, last, taken), rows, apart):
                if items[-1].batch != last:
                    last, taken = items[-1].batch, 0
                taken += sum(item.batch == last for item in items)
                yield last, taken, items
            batch = limit + 1

    @with_current_files
    def _between(self, begin: int, limit: int, last: int, taken: int) -> list[Item]:
        """Return the items of some batches in order, without those already taken."""
        source, _fields = self._source(
            [file for file in self._files if file.first_batch <= limit and file.last_batch >= begin]
        )
        found = self._rows(
            f"SELECT {ITEM_COLUMNS} FROM {source} WHERE {names.BATCH} BETWEEN ? AND ? "  # noqa: S608 - bound
            f"ORDER BY {names.BATCH}, {names.RUN}, {names.INCARNATION}, {names.SEQ}",
            [begin, limit],
        )
        items = [item_of(row) for row in found]
        if begin == last and taken:
            # Counted within the batch: it may have been deleted meanwhile.
            return items[min(taken, sum(item.batch == last for item in items)) :]
        return items

    @with_current_files
    def count_since(self, batch: int) -> int:
        """Return the number of items of a batch and all later ones."""
        files = [file for file in self._files if file.last_batch >= batch]
        known = sum(file.items for file in files if file.first_batch >= batch)
        partly = [file for file in files if file.first_batch < batch]
        if not partly:
            return known
        source, _fields = self._source(partly)
        text = f"SELECT count(*) FROM {source} WHERE {names.BATCH} >= ?"  # noqa: S608 - bound
        ((number,),) = self._rows(text, [batch])
        return known + int(number)

    @with_current_files
    def place(self, offset: int) -> tuple[int, int]:
        """Return the batch of the item after ``offset`` items, and how many of it are before it."""
        source, _fields = self._source(self._files)
        batches = self._rows(
            f"SELECT {names.BATCH}, count(*) FROM {source} GROUP BY 1 ORDER BY 1"  # noqa: S608 - our name
        )
        for batch, number in batches:
            if offset < number:
                return batch, offset
            offset -= number
        return (batches[-1][0] + 1 if batches else 0), 0

    @with_current_files
    def first_batch(self, at: datetime) -> int | None:
        """Return the first batch with an item of this time or later, None without any."""
        source, _fields = self._source(self._files)
        text = f"SELECT min({names.BATCH}) FROM {source} WHERE {names.AT} >= ?"  # noqa: S608 - bound
        ((batch,),) = self._rows(text, [at])
        return None if batch is None else int(batch)


def _window(files: Sequence[File], batch: int, end: int) -> tuple[int, int] | None:
    """Return the next batches with about ``WINDOW_ITEMS`` items, None behind the last file."""
    ahead = [file for file in files if file.last_batch >= batch]
    if not ahead or batch > end:
        return None
    begin = max(batch, min(file.first_batch for file in ahead))
    if begin > end:
        return None
    # Load by batch, where a file begins or ends: a file's items are spread over its batches.
    changes: dict[int, float] = {}
    for file in ahead:
        load = max(file.items / WINDOW_ITEMS, file.raw_bytes / WINDOW_BYTES)
        load /= file.last_batch - file.first_batch + 1
        first = max(file.first_batch, begin)
        changes[first] = changes.get(first, 0.0) + load
        changes[file.last_batch + 1] = changes.get(file.last_batch + 1, 0.0) - load
    full, load, here = 0.0, 0.0, begin
    for place in sorted(changes):
        step = load * (place - here)
        if full + step >= 1 and load > 0:
            return begin, min(end, max(begin, here + int((1 - full) / load) - 1))
        full, load, here = full + step, load + changes[place], place
    return begin, end


def cut(items: Iterable[Item], rows: int, apart: bool = False) -> Iterator[list[Item]]:
    """Yield at most ``rows`` items of about ``CHUNK_BYTES``, see ``since``."""
    chunk: list[Item] = []
    size = 0
    for item in items:
        if chunk and (
            len(chunk) >= rows
            or size + len(item.json) > CHUNK_BYTES
            or (apart and item.batch != chunk[-1].batch)
        ):
            yield chunk
            chunk, size = [], 0
        chunk.append(item)
        size += len(item.json)
    if chunk:
        yield chunk
