"""Received numbers of lines or items of one execution, stored as ranges."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

# Each gap costs 16 bytes in every transaction of the execution.
MOST_SPANS: Final = 100_000


class TooManyGaps(ValueError):
    """The numbers have more gaps than are tracked."""


class Spans:
    """Ordered ranges of numbers (seqs) from 1 on, which neither overlap nor touch."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, stored: bytes = b"") -> None:
        edges = array("q", stored)
        self._firsts = list(edges[0::2])
        self._lasts = list(edges[1::2])

    def to_bytes(self) -> bytes:
        """Encode the ranges for the constructor."""
        edges = array("q", bytes(16 * len(self._firsts)))
        edges[0::2] = array("q", self._firsts)
        edges[1::2] = array("q", self._lasts)
        return edges.tobytes()

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._firsts, self._lasts, strict=True)

    @property
    def count(self) -> int:
        """Return the number of seqs in all ranges."""
        return sum(self._lasts) - sum(self._firsts) + len(self._firsts)

    @property
    def last(self) -> int:
        """Return the highest seq; 0 if empty."""
        return self._lasts[-1] if self._lasts else 0

    def add(self, seqs: Sequence[int]) -> list[tuple[int, int]]:
        """Add seqs, which must be strictly ascending.

        Return the positions in ``seqs`` of the new ones, as slices ``(from, to)``.

        Raises:
            TooManyGaps: discard the object, which may be incomplete.
        """
        new: list[tuple[int, int]] = []
        for begin, end in _runs(seqs):
            new += self._add_run(seqs[begin], seqs[end - 1], begin)
        if len(self._firsts) > MOST_SPANS:
            raise TooManyGaps(f"more than {MOST_SPANS} gaps between its numbers")
        return new

    def gaps(self, after: int = 0, most: int | None = None) -> list[tuple[int, int]]:
        """Return up to ``most`` missing ranges after ``after``, below the highest seq."""
        missing: list[tuple[int, int]] = []
        place = bisect_right(self._lasts, after)
        previous = max(after, self._lasts[place - 1] if place else 0)
        while place < len(self._firsts) and (most is None or len(missing) < most):
            if self._firsts[place] > previous + 1:
                missing.append((previous + 1, self._firsts[place] - 1))
            previous = self._lasts[place]
            place += 1
        return missing

    def _add_run(self, first: int, last: int, at: int) -> list[tuple[int, int]]:
        """Add ``first`` to ``last``; return the positions of the new seqs as slices, counted from
        ``at``.
        """
        firsts, lasts = self._firsts, self._lasts
        if not lasts or first > lasts[-1] + 1:
            firsts.append(first)
            lasts.append(last)
            return [(at, at + last - first + 1)]
        if first == lasts[-1] + 1:
            lasts[-1] = last
            return [(at, at + last - first + 1)]
        # Ranges that overlap or touch the new one.
        low = bisect_left(lasts, first - 1)
        high = bisect_right(firsts, last + 1)
        new: list[tuple[int, int]] = []
        start = first
        for place in range(low, high):
            if firsts[place] > start:
                new.append((at + start - first, at + firsts[place] - first))
            start = max(start, lasts[place] + 1)
        if start <= last:
            new.append((at + start - first, at + last - first + 1))
        if low < high:
            first, last = min(first, firsts[low]), max(last, lasts[high - 1])
        firsts[low:high] = [first]
        lasts[low:high] = [last]
        return new


def _runs(seqs: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the positions ``(from, to)`` of consecutive seqs."""
    if seqs and seqs[-1] - seqs[0] + 1 == len(seqs):
        yield 0, len(seqs)
        return
    begin = 0
    for place in range(1, len(seqs)):
        if seqs[place] != seqs[place - 1] + 1:
            yield begin, place
            begin = place
    if seqs:
        yield begin, len(seqs)
