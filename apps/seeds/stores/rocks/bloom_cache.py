"""Bloom filters of the segments: an LRU cache in memory, the others in files.

A filter that is unreadable, or lacks keys because the process was killed, is rebuilt from the store
in slices. Until then every key of its segment is looked up: slower, but exact.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from apps.seeds.engine.filters import FilterSettings, FilterState, FilterUnreadable, SegmentFilter
from apps.seeds.stores.rocks.layout import PLACE_END, beyond, place

if TYPE_CHECKING:
    from apps.seeds.stores.rocks.transaction import RocksFolder

SLICE: Final = 20_000
logger = logging.getLogger(__name__)


class CachedFilter(msgspec.Struct):
    """Filter in memory. ``built_until``: it holds all keys up to this one; None: it is complete."""

    filter: SegmentFilter
    built_until: bytes | None = None
    saved: bool = False

    @property
    def ready(self) -> bool:
        """Return whether the filter is complete, so that a miss proves that a key is new."""
        return self.built_until is None


class BloomFilterCache:
    """LRU cache of filters by frontier and segment. Guarded by the lock of the ``RocksFolder``."""

    def __init__(self, rocks: RocksFolder, folder: Path, most: int) -> None:
        self._rocks = rocks
        self._folder = folder
        self._most = most
        self._filters: OrderedDict[tuple[int, int], CachedFilter] = OrderedDict()
        self.settings: dict[int, FilterSettings] = {}

    def of(self, frontier: int, segment: int) -> CachedFilter:
        """Return the filter of a segment; load it or start to rebuild it if it is not in memory."""
        where = frontier, segment
        cached = self._filters.get(where)
        if cached is None:
            cached = self._filters[where] = self._read(frontier, segment)
            while len(self._filters) > self._most:
                self._save(*self._filters.popitem(last=False))
        self._filters.move_to_end(where)
        return cached

    def in_memory(self, frontier: int, segment: int) -> CachedFilter | None:
        """Return the filter if it is in memory; never reads a file."""
        return self._filters.get((frontier, segment))

    def state(self, frontier: int, segment: int) -> FilterState | None:
        """Return the state of a filter in memory."""
        cached = self._filters.get((frontier, segment))
        if cached is None:
            return None
        return msgspec.structs.replace(cached.filter.state(), ready=cached.ready)

    def drop(self, frontier: int, segment: int) -> None:
        """Remove the filter of a dropped segment."""
        self._filters.pop((frontier, segment), None)
        self._path(frontier, segment).unlink(missing_ok=True)

    def build(self) -> bool:
        """Continue to rebuild one incomplete filter; return whether any is still incomplete."""
        waiting = [where for where, bloom in self._filters.items() if not bloom.ready]
        if not waiting:
            return False
        where = waiting[0]
        self._build_slice(where, self._filters[where])
        return len(waiting) > 1 or not self._filters[where].ready

    def save_all(self) -> None:
        """Save all filters before the process ends."""
        while self._filters:
            self._save(*self._filters.popitem())

    def _build_slice(self, where: tuple[int, int], shelved: CachedFilter) -> None:
        prefix = b"s" + place(*where)
        start = shelved.built_until or prefix
        keys = []
        for key, _ in self._rocks.scan(start, beyond(prefix)):
            keys.append(key)
            if len(keys) == SLICE:
                break
        shelved.filter.add(key[PLACE_END:] for key in keys)
        shelved.built_until = keys[-1] + b"\0" if len(keys) == SLICE else None

    def _read(self, frontier: int, segment: int) -> CachedFilter:
        record = self._rocks.records.get(frontier, {}).get(segment)
        settings = self.settings.get(frontier, FilterSettings())
        if record is None or not record.mark:
            return CachedFilter(SegmentFilter(settings))
        try:
            return CachedFilter(
                SegmentFilter.load(self._path(frontier, segment), record.mark), saved=True
            )
        except FilterUnreadable as reason:
            logger.warning(
                "filter of segment %d: %s; it is built again, the store finds duplicates meanwhile",
                segment,
                reason,
            )
        shelved = CachedFilter(SegmentFilter(settings), built_until=b"s" + place(frontier, segment))
        if record.books.added <= SLICE:
            self._build_slice((frontier, segment), shelved)
        return shelved

    def _save(self, where: tuple[int, int], shelved: CachedFilter) -> None:
        frontier, segment = where
        record = self._rocks.records.get(frontier, {}).get(segment)
        if record is None or shelved.saved or not shelved.ready:
            return
        try:
            shelved.filter.save(self._path(frontier, segment), record.mark)
        except OSError as error:
            # A lost filter is rebuilt, so errors are only logged.
            logger.warning("filter of segment %d is not saved: %s", segment, error)

    def _path(self, frontier: int, segment: int) -> Path:
        return self._folder / f"{frontier}-{segment}.bloom"
