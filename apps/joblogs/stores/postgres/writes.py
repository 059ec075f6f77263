"""Stores lines in one transaction: determines the new ones, and copies them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from apps.joblogs.engine.words import joined
from apps.joblogs.stores.accounts import (
    DAY,
    LEVEL_NUMBERS,
    ExecutionProgress,
    Incoming,
    New,
    PendingLines,
    by_day,
)
from apps.joblogs.stores.days.session import MASK, SHIFT, table
from apps.joblogs.stores.postgres.schema import NUMBERS, SETUP_LOCK, of_day
from apps.runtime.engine.postgres_pool import Cursor

# Lock order: two writers do not deadlock.
_KNOWN: Final = """
    SELECT stream, boot, id, lane, spans, fresh FROM executions
    WHERE (stream, boot) IN (SELECT * FROM unnest(%s::text[], %s::text[]))
    ORDER BY stream COLLATE "C", boot COLLATE "C" FOR UPDATE
"""
_INSERT_EXECUTION: Final = """
    INSERT INTO executions (stream, boot, boot_number, project, job, lane, dropped, spans, fresh,
                            created_at, updated_at)
    SELECT %(stream)s, %(boot)s, 1 + coalesce(max(boot_number), 0), %(project)s, %(job)s, %(lane)s,
           0, '', '', %(now)s, %(now)s
    FROM executions WHERE stream = %(stream)s
    ON CONFLICT DO NOTHING
"""
_UPDATE_EXECUTION: Final = """
    UPDATE executions SET dropped = greatest(dropped, %s), spans = %s, fresh = %s, updated_at = %s,
        first_at = least(first_at, %s), last_at = greatest(last_at, %s)
    WHERE id = %s
"""
_HOLD: Final = """
    INSERT INTO holdings (execution, day, level, lines, bytes, first_at)
    VALUES (%s, %s, %s, %s, %s, %s)
    ON CONFLICT (execution, day, level) DO UPDATE SET lines = holdings.lines + excluded.lines,
        bytes = holdings.bytes + excluded.bytes,
        first_at = least(holdings.first_at, excluded.first_at)
"""
_ESCAPES: Final = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})

# Lines per block of COPY: the server stores one while the next one is formatted.
_BLOCK: Final = 500


class LineNumbers:
    """Source of line numbers, unique within a microsecond and reserved in blocks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next, self._end = 0, 0

    def take(self, cursor: Cursor, count: int) -> list[int]:
        """Return ``count`` numbers, ascending within a block."""
        with self._lock:
            numbers = list(range(self._next, min(self._end, self._next + count)))
            self._next += len(numbers)
            missing = count - len(numbers)
            if missing:
                blocks = -(-missing // NUMBERS)
                rows = cursor.execute(
                    "SELECT nextval('numbers') FROM generate_series(1, %s)", (blocks,)
                ).fetchall()
                for (block,) in rows:
                    self._next, self._end = block * NUMBERS, (block + 1) * NUMBERS
                    taken = min(NUMBERS, count - len(numbers))
                    numbers += range(self._next, self._next + taken)
                    self._next += taken
            return numbers


def write(cursor: Cursor, incoming: Sequence[Incoming], now: int, numbers: LineNumbers) -> int:
    """See ``LogStore.write``; ``now`` in microseconds since 1970."""
    lines: list[New] = []
    rows: list[tuple[int, ...]] = []
    changed: list[tuple[Any, ...]] = []
    lanes: dict[int, int] = {}
    for execution, (pk, lane, progress) in zip(
        incoming, _executions(cursor, incoming, now), strict=True
    ):
        lanes[pk], held = lane, PendingLines(pk)
        new = progress.take(execution.seqs, now)
        held.add([line for begin, end in new for line in execution.lines[begin:end]], lines)
        spans, fresh = progress.spans.to_bytes(), progress.fresh_as_text()
        changed.append((execution.dropped, spans, fresh, now, held.first_at, held.last_at, pk))
        rows += held.rows
    cursor.executemany(_UPDATE_EXECUTION, changed)
    if lines:
        _copy(cursor, lines, lanes, numbers)
        cursor.executemany(_HOLD, sorted(rows))
    return len(lines)


def _executions(
    cursor: Cursor, incoming: Sequence[Incoming], now: int
) -> list[tuple[int, int, ExecutionProgress]]:
    """Return (id, lane, progress) of the executions, created if missing, and locked."""
    known = _known(cursor, incoming)
    missing = [
        execution for execution in incoming if (execution.stream, execution.boot) not in known
    ]
    for execution in missing:
        # Serialize the numbering of a stream's executions.
        cursor.execute(
            "SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (SETUP_LOCK, execution.stream)
        )
        lane = _lane(cursor, execution.project, execution.job)
        cursor.execute(
            _INSERT_EXECUTION,
            {
                "stream": execution.stream,
                "boot": execution.boot,
                "project": execution.project,
                "job": execution.job,
                "lane": lane,
                "now": now,
            },
        )
    if missing:
        known |= _known(cursor, missing)
    return [known[execution.stream, execution.boot] for execution in incoming]


def _known(
    cursor: Cursor, incoming: Sequence[Incoming]
) -> dict[tuple[str, str], tuple[int, int, ExecutionProgress]]:
    streams, boots = (
        [execution.stream for execution in incoming],
        [execution.boot for execution in incoming],
    )
    rows = cursor.execute(_KNOWN, (streams, boots), binary=True).fetchall()
    return {
        (stream, boot): (pk, lane, ExecutionProgress(spans, fresh))
        for stream, boot, pk, lane, spans, fresh in rows
    }


def _lane(cursor: Cursor, project: int, job: int) -> int:
    for _ in range(2):
        row = cursor.execute(
            "SELECT id FROM lanes WHERE project = %s AND job = %s", (project, job)
        ).fetchone()
        if row is not None:
            break
        cursor.execute(
            "INSERT INTO lanes (project, job) VALUES (%s, %s) ON CONFLICT DO NOTHING",
            (project, job),
        )
    else:
        row = cursor.execute(
            "SELECT id FROM lanes WHERE project = %s AND job = %s", (project, job)
        ).fetchone()
    assert row is not None  # noqa: S101 - inserted above
    return int(row[0])


def _escaped(text: str) -> str:
    """Escape text for COPY."""
    if text.isprintable() and "\\" not in text:
        return text
    return text.translate(_ESCAPES)


def _copy(cursor: Cursor, lines: list[New], lanes: Mapping[int, int], numbers: LineNumbers) -> None:
    unique = iter(numbers.take(cursor, len(lines)))
    days = by_day(lines)
    _have_days(cursor, [day for day, _here in days])
    for day, day_lines in days:
        with cursor.copy(
            f"COPY lines_{table(day)}"
            " (id, execution, seq, lane, level, source, text, fingerprint, words) FROM STDIN"
        ) as copy:
            for begin in range(0, len(day_lines), _BLOCK):
                copy.write(_block(day_lines[begin : begin + _BLOCK], day * DAY, lanes, unique))


def _block(
    lines: Sequence[New], midnight: int, lanes: Mapping[int, int], numbers: Iterator[int]
) -> str:
    """Format lines as a block for COPY."""
    return "".join(
        [
            f"{at - midnight << SHIFT | number & MASK}\t{pk}\t{line.seq}\t{lanes[pk]}\t"
            f"{LEVEL_NUMBERS[line.level]}\t{_escaped(line.source)}\t{_escaped(line.text)}\t"
            f"{_escaped(line.fingerprint)}\t{joined(line.text)}\n"
            # Not strict=True, which would consume one number more.
            for (at, pk, line), number in zip(lines, numbers)  # noqa: B905
        ]
    )


def _have_days(cursor: Cursor, days: Sequence[int]) -> None:
    """Create missing tables of days, and prevent their removal until this transaction ends."""
    sql = "SELECT day FROM days WHERE day = ANY(%s) ORDER BY day FOR SHARE"
    there: set[Any] = {day for (day,) in cursor.execute(sql, (list(days),)).fetchall()}
    for day in days:
        if day in there:
            continue
        cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", (SETUP_LOCK + 1, day))
        cursor.execute("SELECT day FROM days WHERE day = %s FOR SHARE", (day,))
        if cursor.fetchone() is None:
            cursor.execute(of_day(day))
            cursor.execute("INSERT INTO days VALUES (%s)", (day,))
