"""Record of a stream: one document, updated with optimistic concurrency.

Elasticsearch has no transactions, so a line is stored in three steps. First the record reserves the
day's index for each new line (``pending``); then the lines are created, each under its own ID; then
the record marks them as stored (``spans``) and counts them. A batch repeated after a crash finds
the reserved day, although the line's time may differ, and so makes no second copy; a line marked as
stored is never created again, even after retention has deleted it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Final

from apps.joblogs.engine.lines import LogLine
from apps.joblogs.engine.moments import microseconds, moment_of
from apps.joblogs.stores.accounts import MOST_MISSING, Incoming
from apps.joblogs.stores.base import GAP_SECONDS, Ref, StreamState
from apps.joblogs.stores.elastic import spans
from apps.joblogs.stores.elastic.spans import Span

MOST_SPANS: Final = 20_000
# For more days, all indexes are searched: the list of names would make the URL too long.
MOST_DAYS: Final = 30


def day_of(at: datetime) -> str:
    """Return a day as in index names, such as ``2026.11.22``."""
    return at.astimezone(UTC).strftime("%Y.%m.%d")


@dataclass(slots=True)
class ExecutionRecord:
    """One execution of a stream."""

    boot: str
    number: int
    dropped: int = 0
    created_at: int = 0
    spans: list[Span] = field(default_factory=list)
    # (first, last, day) of reserved lines; they may be stored already.
    pending: list[tuple[int, int, str]] = field(default_factory=list)

    def day(self, seq: int) -> str:
        """Return the day reserved for a line; "" if none."""
        return next((day for first, last, day in self.pending if first <= seq <= last), "")

    def unknown(self, lines: Sequence[LogLine]) -> Sequence[LogLine]:
        """Return the lines that are not marked as stored; ``lines`` are ascending."""
        last = self.spans[-1][1] if self.spans else -1
        if not lines or lines[0].seq > last:
            return lines
        return [line for line in lines if line.seq > last or not spans.has(self.spans, line.seq)]


@dataclass(slots=True)
class WrittenLines:
    """Result of writing lines of one execution, in order."""

    boot: str
    stored: list[LogLine] = field(default_factory=list)
    # Rejected permanently by the server.
    refused: list[LogLine] = field(default_factory=list)


@dataclass(slots=True)
class StreamRecord:
    """Record of a stream. Times are microseconds since 1970."""

    stream: str
    project: int
    job: int
    lines: int = 0
    bytes: int = 0
    first_at: int | None = None
    last_at: int | None = None
    updated_at: int = 0
    # Deletions were started, and it is unknown whether they were counted.
    uncertain: bool = False
    days: list[str] = field(default_factory=list)
    executions: list[ExecutionRecord] = field(default_factory=list)

    # --- document ---------------------------------------------------------------------------------

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> StreamRecord:
        """Convert a document to a record."""
        values = {name: document[name] for name in _PLAIN}
        executions = [
            ExecutionRecord(
                **(execution | {"pending": [tuple(span) for span in execution["pending"]]})
            )
            for execution in document["executions"]
        ]
        return cls(**values, executions=executions)

    def document(self) -> dict[str, Any]:
        """Return the document to store, including the searchable fields."""
        pending = {day for execution in self.executions for _first, _last, day in execution.pending}
        executions = [
            {name: getattr(execution, name) for name in ExecutionRecord.__slots__}
            for execution in self.executions
        ]
        return {name: getattr(self, name) for name in _PLAIN} | {
            "pending_days": sorted(pending),
            "executions": executions,
        }

    # --- write ------------------------------------------------------------------------------------

    def reserve(self, arrived: Iterable[Incoming], now: datetime) -> bool:
        """Reserve days for unknown lines; return whether the record changed."""
        changed = False
        for written in arrived:
            execution = self.execution(written.boot)
            if execution is None:
                number = len(self.executions) + 1
                execution = ExecutionRecord(written.boot, number, created_at=microseconds(now))
                self.executions.append(execution)
                changed = True
            changed |= written.dropped > execution.dropped
            execution.dropped = max(execution.dropped, written.dropped)
            changed |= self._plan(execution, written.lines)
            if len(execution.pending) + len(execution.spans) > MOST_SPANS:
                raise ValueError(f"{self.stream}: more than {MOST_SPANS} gaps between its lines")
        if changed:
            self.updated_at = microseconds(now)
        return changed

    def _plan(self, execution: ExecutionRecord, lines: Sequence[LogLine]) -> bool:
        new = [line for line in execution.unknown(lines) if not execution.day(line.seq)]
        for day, some in groupby(new, key=lambda line: day_of(line.at)):
            execution.pending += [(*span, day) for span in spans.ranges(line.seq for line in some)]
            if day not in self.days:
                self.days = sorted([*self.days, day])
        return bool(new)

    def take_over(self, arrived: Iterable[WrittenLines], now: datetime) -> int:
        """Mark written lines as stored, and release rejected ones; return how many were new."""
        total = 0
        for written in arrived:
            execution = self.execution(written.boot)
            if execution is None:
                continue
            new = execution.unknown(written.stored)
            for first, last in spans.ranges(line.seq for line in new):
                spans.add(execution.spans, first, last, microseconds(now))
            gone = {line.seq for line in (*written.stored, *written.refused)}
            execution.pending = list(_without(execution.pending, gone))
            if new:
                self._count(new)
            total += len(new)
        self.updated_at = microseconds(now)
        return total

    def execution(self, boot: str) -> ExecutionRecord | None:
        """Return the execution with this ID."""
        return next((candidate for candidate in self.executions if candidate.boot == boot), None)

    def _count(self, lines: Sequence[LogLine]) -> None:
        self.lines += len(lines)
        self.bytes += sum(size_of(line) for line in lines)
        times = [line.micros for line in lines]
        first, last = min(times), max(times)
        self.first_at = first if self.first_at is None else min(first, self.first_at)
        self.last_at = last if self.last_at is None else max(last, self.last_at)

    def forget(self, lines: int, size: int, first_at: int | None) -> None:
        """Subtract deleted lines; ``first_at`` is the time of the oldest line left."""
        lines = min(lines, self.lines)
        self.lines -= lines
        self.bytes = max(0, self.bytes - size) if self.lines else 0
        if first_at is not None:
            self.first_at = first_at

    @property
    def forgotten(self) -> int:
        """Return the number of stored lines that were deleted since."""
        spans_of_all = (span for execution in self.executions for span in execution.spans)
        return sum(last - first + 1 for first, last, _since in spans_of_all) - self.lines

    # --- read -------------------------------------------------------------------------------------

    def horizon(self, after: Ref, now: datetime) -> Ref:
        """Return the last place visible to a reader at ``after``; ``after`` itself if there is
        none.

        It is followed by a gap that is younger than ``GAP_SECONDS``.
        """
        oldest = microseconds(now) - round(GAP_SECONDS * 1e6)
        reached = after
        for execution in self.executions:
            if execution.number > max(1, after.boot_number) and execution.created_at > oldest:
                # The last lines of the previous execution may still be on their way.
                break
            for first, _last, span in spans.gaps(execution.spans):
                if Ref(execution.number, span[0]) > after and span[2] > oldest:
                    return max(after, Ref(execution.number, first - 1))
            if execution.spans:
                reached = max(reached, Ref(execution.number, execution.spans[-1][1]))
        return reached

    def following(self, after: Ref, horizon: Ref, limit: int) -> list[Ref]:
        """Return up to ``limit`` places of received lines after ``after``, up to ``horizon``."""
        places: list[Ref] = []
        for execution in self.executions:
            if execution.number < after.boot_number:
                continue
            for first, last, _since in execution.spans:
                begin = (
                    max(first, after.seq + 1) if execution.number == after.boot_number else first
                )
                end = min(last, begin + limit - len(places) - 1)
                if execution.number == horizon.boot_number:
                    end = min(end, horizon.seq)
                places += [Ref(execution.number, seq) for seq in range(begin, end + 1)]
            if execution.number == horizon.boot_number:
                break
        return places

    def state(self) -> StreamState:
        """Return the stored state of the stream."""
        updated = self.updated_at
        missing: dict[int, list[tuple[int, int]]] = {}
        left = MOST_MISSING
        for execution in self.executions:
            missing_ranges = [(first, last) for first, last, _span in spans.gaps(execution.spans)][
                :left
            ]
            left -= len(missing_ranges)
            if missing_ranges:
                missing[execution.number] = missing_ranges
        return StreamState(
            stream=self.stream,
            project=self.project,
            job=self.job,
            lines=self.lines,
            bytes=self.bytes,
            dropped=sum(execution.dropped for execution in self.executions),
            first_at=moment_of(updated if self.first_at is None else self.first_at),
            last_at=moment_of(updated if self.last_at is None else self.last_at),
            forgotten=self.forgotten,
            missing=missing,
        )


_PLAIN: Final = tuple(name for name in StreamRecord.__slots__ if name != "executions")


def size_of(line: LogLine) -> int:
    """Return the bytes of a line's text."""
    return len(line.text) if line.text.isascii() else len(line.text.encode())


def _without(
    pending: Iterable[tuple[int, int, str]], gone: set[int]
) -> Iterable[tuple[int, int, str]]:
    for first, last, day in pending:
        left = [seq for seq in range(first, last + 1) if seq not in gone]
        yield from ((*span, day) for span in spans.ranges(left))
