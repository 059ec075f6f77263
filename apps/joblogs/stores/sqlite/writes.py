"""Stores lines in one transaction: determines the new ones, and inserts them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from apps.joblogs.engine.words import spaced
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
from apps.joblogs.stores.sqlite.schema import WORDS_VERSION, of_day, tags_of

_INSERT_EXECUTION: Final = """
    INSERT INTO executions (stream, boot, boot_number, project, job, dropped, spans, fresh,
                            created_at, updated_at)
    VALUES (?1, ?2, 1 + coalesce((SELECT max(boot_number) FROM executions WHERE stream = ?1), 0),
            ?3, ?4, 0, x'', '', ?5, ?5)
"""
_UPDATE_EXECUTION: Final = """
    UPDATE executions SET dropped = max(dropped, ?), spans = ?, fresh = ?, updated_at = ?,
        first_at = min(coalesce(first_at, ?5), coalesce(?5, first_at)),
        last_at = max(coalesce(last_at, ?6), coalesce(?6, last_at))
    WHERE id = ?7
"""
# Rows per statement: every build of SQLite accepts 999 values.
_AT_ONCE: Final = 100
_HOLD: Final = """
    INSERT INTO holdings (execution, day, level, lines, bytes, first_at)
    VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (execution, day, level) DO UPDATE SET lines = lines + excluded.lines,
        bytes = bytes + excluded.bytes, first_at = min(first_at, excluded.first_at)
"""


def write(connection: sqlite3.Connection, incoming: Sequence[Incoming], now: int) -> int:
    """See ``LogStore.write``; ``now`` in microseconds since 1970."""
    lines: list[New] = []
    tags: dict[tuple[int, str], str] = {}
    for execution in incoming:
        _take(connection, execution, now, lines, tags)
    for day, day_lines in by_day(lines):
        _insert(connection, day, day_lines, tags)
    return len(lines)


def _take(
    connection: sqlite3.Connection,
    execution: Incoming,
    now: int,
    lines: list[New],
    tags: dict[tuple[int, str], str],
) -> None:
    """Insert the new lines of an execution, and record them as received."""
    known = "SELECT id, project, job, spans, fresh FROM executions WHERE stream = ? AND boot = ?"
    row = connection.execute(known, (execution.stream, execution.boot)).fetchone()
    if row is None:
        values = (execution.stream, execution.boot, execution.project, execution.job, now)
        connection.execute(_INSERT_EXECUTION, values)
        row = connection.execute(known, (execution.stream, execution.boot)).fetchone()
    pk, project, job, spans, fresh = row
    progress = ExecutionProgress(spans, fresh)
    new = progress.take(execution.seqs, now)
    for level, number in LEVEL_NUMBERS.items():
        tags[pk, level] = tags_of(project, job, pk, number)
    held = PendingLines(pk)
    held.add([line for begin, end in new for line in execution.lines[begin:end]], lines)
    spans, fresh = progress.spans.to_bytes(), progress.fresh_as_text()
    connection.execute(
        _UPDATE_EXECUTION, (execution.dropped, spans, fresh, now, held.first_at, held.last_at, pk)
    )
    connection.executemany(_HOLD, held.rows)


def _insert(
    connection: sqlite3.Connection,
    day: int,
    lines: Sequence[New],
    tags: Mapping[tuple[int, str], str],
) -> None:
    # Number of lines ever stored in the day.
    counter, midnight, name = _counter(connection, day), day * DAY, table(day)
    # Column-wise: work per line in Python would cost as much as SQLite's own.
    ats, pks, columns = zip(*lines, strict=True)
    seqs, _ats, levels, sources, texts, kinds = zip(*columns, strict=True)
    ids = [at - midnight << SHIFT | number & MASK for number, at in enumerate(ats, counter)]
    numbers = list(map(LEVEL_NUMBERS.__getitem__, levels))
    _insert_lines(connection, name, (ids, pks, seqs, numbers, sources, texts, kinds))
    words = [text if text.isascii() else spaced(text) for text in texts]
    marks = map(tags.__getitem__, zip(pks, levels, strict=True))
    entries: Iterable[tuple[int, str, str]] = zip(ids, words, marks, strict=True)
    if counter >> SHIFT != counter + len(lines) >> SHIFT:
        # FTS5 appends ascending row IDs in one go.
        entries = sorted(entries)
    # Single-row statements: before a multi-row one, FTS5 would flush its buffer.
    connection.executemany(
        f"INSERT INTO words_{name} (rowid, words, tags) VALUES (?, ?, ?)",  # noqa: S608 - a name of our own
        entries,
    )
    connection.execute("UPDATE days SET counter = ? WHERE day = ?", (counter + len(lines), day))


def _insert_lines(
    connection: sqlite3.Connection, name: str, columns: Sequence[Sequence[int | str]]
) -> None:
    """Insert many rows per statement: a third less work per line than single rows."""
    count, width = len(columns[0]), len(columns)
    values: list[int | str] = [0] * (count * width)
    for place, column in enumerate(columns):
        values[place::width] = column
    row = f"({', '.join('?' * width)})"
    whole = count - count % _AT_ONCE
    for begin, end, rows in ((0, whole, _AT_ONCE), (whole, count, 1)):
        connection.executemany(
            f"INSERT INTO lines_{name} VALUES {', '.join([row] * rows)}",  # noqa: S608 - a name of our own
            (values[at * width : (at + rows) * width] for at in range(begin, end, rows)),
        )


def _counter(connection: sqlite3.Connection, day: int) -> int:
    """Return the number of lines ever stored in the day; create its tables if missing."""
    sql = "SELECT counter, words FROM days WHERE day = ?"
    row = connection.execute(sql, (day,)).fetchone()
    if row is None:
        for statement in of_day(day):
            connection.execute(statement)
        connection.execute("INSERT INTO days VALUES (?, 0, ?)", (day, WORDS_VERSION))
        return 0
    if row[1] != WORDS_VERSION:
        connection.execute("UPDATE days SET words = 0 WHERE day = ?", (day,))
    return int(row[0])
