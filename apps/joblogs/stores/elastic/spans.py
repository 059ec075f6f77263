"""Ranges of line numbers already stored for one execution: spans ``[first, last, since]``.

``since`` (microseconds) is when the gap before a span was first seen: a reader waits for missing
lines for a limited time. A span is a plain list, because it is stored as JSON.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

Span = list[int]


def has(spans: list[Span], number: int) -> bool:
    """Return whether ``number`` is in one of the spans."""
    place = bisect_left(spans, number, key=_last)
    return place < len(spans) and spans[place][0] <= number


def ranges(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield consecutive numbers as (first, last); ``numbers`` is ascending."""
    first = last = None
    for number in numbers:
        if first is None or last is None:
            first = last = number
        elif number == last + 1:
            last = number
        else:
            yield first, last
            first = last = number
    if first is not None and last is not None:
        yield first, last


def add(spans: list[Span], first: int, last: int, since: int) -> None:
    """Insert a range, both ends included, and merge neighbours."""
    begin = bisect_left(spans, first - 1, key=_last)
    end = begin
    while end < len(spans) and spans[end][0] <= last + 1:
        end += 1
    if begin == end:
        # A gap has the age of the span after it, even if it was partly filled later.
        seen = spans[begin][2] if begin < len(spans) else since
        spans.insert(begin, [first, last, seen])
        return
    spans[begin:end] = [
        [min(first, spans[begin][0]), max(last, spans[end - 1][1]), spans[begin][2]]
    ]


def gaps(spans: list[Span]) -> Iterator[tuple[int, int, Span]]:
    """Yield each gap as (first, last), with the span after it."""
    expected = 1
    for span in spans:
        if span[0] > expected:
            yield expected, span[0] - 1, span
        expected = span[1] + 1


def _last(span: Span) -> int:
    return span[1]
