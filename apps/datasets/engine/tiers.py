"""Chooses which small files of a table are merged, so that no item is rewritten often.

Files are merged with their neighbours only: their rows stay in order. The result is several times
as large as its largest part, so an item is rewritten a few times before its file is large.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

# Files of one run and day are merged when there are at least this many of similar size, and their
# sum is at least this multiple of the largest one.
_FILES: Final = 16
_GROWTH: Final = 4.0
# Those of a run that has ended.
_FILES_AT_END: Final = 2
_GROWTH_AT_END: Final = 1.25


class Extent(msgspec.Struct, frozen=True):
    """A file of the table with its number, size and batches."""

    number: int
    bytes: int
    first_batch: int
    last_batch: int


def to_merge(files: Sequence[Extent], *, small_bytes: int, ended: bool) -> list[Extent]:
    """Return neighbours among the files of one run and day that are to be merged; [] for none.

    ``ended``: the run yields no more items.
    """
    parts: list[list[list[Extent]]] = [[]]
    for unit in _units(files):
        if _size(unit) < small_bytes:
            parts[-1].append(unit)
        else:
            parts.append([])
    fewest, growth = (_FILES_AT_END, _GROWTH_AT_END) if ended else (_FILES, _GROWTH)
    while parts:
        part = parts.pop()
        if sum(map(len, part)) < fewest:
            continue
        sizes = [_size(unit) for unit in part]
        largest = max(sizes)
        if sum(sizes) >= growth * largest:
            return [file for unit in part for file in unit]
        # Without the largest one, what is on either side of it may be worth it.
        place = sizes.index(largest)
        parts += [part[:place], part[place + 1 :]]
    return []


def _units(files: Sequence[Extent]) -> list[list[Extent]]:
    """Return the files in order; those that share a batch stay together."""
    units: list[list[Extent]] = []
    end = -1
    for file in sorted(files, key=lambda file: (file.first_batch, file.number)):
        if file.first_batch <= end:
            units[-1].append(file)
        else:
            units.append([file])
        end = max(end, file.last_batch)
    return units


def _size(unit: Sequence[Extent]) -> int:
    return sum(file.bytes for file in unit)
