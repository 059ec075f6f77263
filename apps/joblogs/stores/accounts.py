"""Received lines of an execution: merging of batches, counts, and gaps that readers wait for."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby, repeat
from operator import itemgetter, lt
from typing import Final

from apps.joblogs.engine.lines import BIGGEST_SEQ, LEVELS, LogLine, harmless
from apps.joblogs.stores.base import GAP_SECONDS, LineBatch
from yardkit.spans import Spans

DAY: Final = 86_400_000_000
# Stored form of levels; 0 is a line without a level.
LEVEL_NAMES: Final = ("", *LEVELS)
LEVEL_NUMBERS: Final = {name: number for number, name in enumerate(LEVEL_NAMES)}
# Lines of this level and above have a small index of their own.
LOUD: Final = LEVEL_NUMBERS["WARNING"]
# An execution without lines is deleted after this time; a message redelivered later would be stored
# again.
SILENT: Final = timedelta(days=30)
MOST_MISSING: Final = 100
_MOST_FRESH: Final = 100
_GAP: Final = int(GAP_SECONDS * 1_000_000)
# If there are many gaps, those of the same slot are merged.
_SLOT: Final = _GAP // 20


def level_numbers(levels: Collection[str]) -> list[int]:
    """Return the numbers of known levels, ascending; unknown names are ignored."""
    return sorted({LEVEL_NUMBERS[level] for level in levels if level in LEVEL_NUMBERS})


def as_stored(contains: str) -> str:
    """Return the text as stored, with escapes instead of control characters."""
    return harmless(contains)


# (microseconds since 1970, execution, line)
New = tuple[int, int, LogLine]


class PendingLines:
    """Counts of an execution's new lines while they are merged with those of others."""

    def __init__(self, execution: int) -> None:
        self._execution = execution
        # (day, level) -> (lines, bytes of text, time of the first line)
        self.counts: dict[tuple[int, int], tuple[int, int, int]] = {}
        # Microseconds since 1970.
        self.first_at: int | None = None
        self.last_at: int | None = None

    def add(self, lines: Sequence[LogLine], to: list[New]) -> None:
        """Append all new lines of the execution to ``to``; call it once. Raises ``ValueError`` for
        a lone surrogate.

        Work per line is minimized.
        """
        if not lines:
            return
        ats = [line.micros for line in lines]
        to += zip(ats, repeat(self._execution), lines)
        self.first_at, self.last_at = min(ats), max(ats)
        by_level: dict[str, list[tuple[int, str]]] = defaultdict(list)
        for at, line in zip(ats, lines, strict=True):
            by_level[line.level].append((at, line.text))
        day = self.first_at // DAY
        for level, texts in by_level.items():
            if day == self.last_at // DAY:
                self.counts[day, LEVEL_NUMBERS[level]] = _count(texts)
                continue
            texts.sort()
            for of, day_texts in groupby(texts, key=lambda item: item[0] // DAY):
                self.counts[of, LEVEL_NUMBERS[level]] = _count(list(day_texts))

    @property
    def rows(self) -> list[tuple[int, ...]]:
        """Return rows of (execution, day, level, lines, bytes of text, time of the first line)."""
        return [(self._execution, *key, *count) for key, count in self.counts.items()]


def _count(lines: Sequence[tuple[int, str]]) -> tuple[int, int, int]:
    size = len("".join([text for _at, text in lines]).encode())
    return len(lines), size, min(lines)[0]


def by_day(lines: list[New]) -> list[tuple[int, list[New]]]:
    """Group lines by day; sort them by time, then by arrival."""
    lines.sort(key=itemgetter(0))
    if not lines or lines[0][0] // DAY == lines[-1][0] // DAY:
        return [(lines[0][0] // DAY, lines)] if lines else []
    return [
        (day, list(day_lines)) for day, day_lines in groupby(lines, key=lambda line: line[0] // DAY)
    ]


@dataclass(slots=True)
class Incoming:
    """Lines of one execution in one call; ``seqs`` are strictly ascending."""

    project: int
    job: int
    stream: str
    boot: str
    dropped: int
    seqs: list[int]
    lines: Sequence[LogLine]


def gathered(batches: Iterable[LineBatch]) -> list[Incoming]:
    """Merge batches by execution, in a fixed order, so that concurrent writers do not deadlock."""
    by_execution: dict[tuple[str, str], list[LineBatch]] = {}
    for batch in batches:
        by_execution.setdefault((batch.stream, batch.boot), []).append(batch)
    return [_put_together(by_execution[key]) for key in sorted(by_execution)]


def _put_together(batches: list[LineBatch]) -> Incoming:
    first = batches[0]
    lines = first.lines
    if len(batches) > 1:
        lines = [line for batch in batches for line in batch.lines]
    seqs = [line.seq for line in lines]
    if not all(map(lt, seqs, seqs[1:])):
        # Of duplicate lines the first one counts, as if it had been stored before.
        distinct = {line.seq: line for line in reversed(lines)}
        seqs = sorted(distinct)
        lines = [distinct[seq] for seq in seqs]
    if seqs and (seqs[0] < 1 or seqs[-1] > BIGGEST_SEQ):
        wrong = seqs[0] if seqs[0] < 1 else seqs[-1]
        raise ValueError(f"line {wrong} of {first.stream}: lines count from 1 to {BIGGEST_SEQ}")
    if not LEVEL_NUMBERS.keys() >= {line.level for line in lines}:
        raise ValueError(f"a line of {first.stream} has a level that does not exist")
    dropped = max(batch.dropped for batch in batches)
    return Incoming(first.project, first.job, first.stream, first.boot, dropped, seqs, lines)


class ExecutionProgress:
    """Received line numbers of an execution, and gaps that a reader still waits for.

    ``fresh``: recent gaps as (first, last, since), with ``since`` in microseconds since 1970.
    """

    __slots__ = ("fresh", "spans")

    def __init__(self, spans: bytes = b"", fresh: str = "") -> None:
        self.spans = Spans(spans)
        self.fresh: list[tuple[int, int, int]] = [
            (first, last, since) for first, last, since in (json.loads(fresh) if fresh else [])
        ]

    def take(self, seqs: list[int], now: int) -> list[tuple[int, int]]:
        """Add strictly ascending seqs; return the new ones as slices. Raises ``TooManyGaps``."""
        last = self.spans.last
        new = self.spans.add(seqs)
        self.fresh = [gap for gap in self.fresh if gap[2] > now - _GAP]
        if seqs and seqs[-1] > last:
            gaps = self.spans.gaps(last, _MOST_FRESH + 1)
            if len(gaps) > _MOST_FRESH:
                gaps = [(gaps[0][0], seqs[-1])]
            self.fresh += [(begin, end, now) for begin, end in gaps]
        if len(self.fresh) > _MOST_FRESH:
            self.fresh = _in_slots(self.fresh)
        return new

    def fresh_as_text(self) -> str:
        """Encode ``fresh`` for the constructor."""
        return json.dumps(self.fresh, separators=(",", ":")) if self.fresh else ""

    def horizon(self, now: int) -> int | None:
        """Return the first missing seq that readers wait for; None if there is none."""
        waiting = (
            gap[0]
            for first, last, since in self.fresh
            if since > now - _GAP
            for gap in self.spans.gaps(first - 1, 1)
            if gap[0] <= last
        )
        return min(waiting, default=None)


def _in_slots(fresh: Iterable[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Merge gaps of about the same age; the merged gap is as young as its youngest."""
    slots: dict[int, tuple[int, int, int]] = {}
    for first, last, since in fresh:
        slot = slots.get(since // _SLOT)
        slots[since // _SLOT] = (slot[0] if slot else first, last, since)
    return list(slots.values())
