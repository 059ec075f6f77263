"""Storing lines: one transaction that looks at what has come before, and adds the rest."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Final

from apps.joblogs.engine.words import spaced
from apps.joblogs.stores.accounts import (
    DAY,
    LEVEL_NUMBERS,
    Held,
    Incoming,
    New,
    Progress,
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
_HOLD: Final = """
    INSERT INTO holdings (execution, day, level, lines, bytes, first_at)
    VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (execution, day, level) DO UPDATE SET lines = lines + excluded.lines,
        bytes = bytes + excluded.bytes, first_at = min(first_at, excluded.first_at)
"""


def write(connection: sqlite3.Connection, incoming: Sequence[Incoming], now: int) -> int:
    """See ``LogStore.write``; ``now`` in microseconds since 1970."""
    lines: list[New] = []
    tags: dict[tuple[int, int], str] = {}
    for one in incoming:
        _take(connection, one, now, lines, tags)
    for day, here in by_day(lines):
        _insert(connection, day, here, tags)
    return len(lines)


def _take(
    connection: sqlite3.Connection,
    one: Incoming,
    now: int,
    lines: list[New],
    tags: dict[tuple[int, int], str],
) -> None:
    """Add the new lines of an execution, and note them in it."""
    known = "SELECT id, project, job, spans, fresh FROM executions WHERE stream = ? AND boot = ?"
    row = connection.execute(known, (one.stream, one.boot)).fetchone()
    if row is None:
        values = (one.stream, one.boot, one.project, one.job, now)
        connection.execute(_INSERT_EXECUTION, values)
        row = connection.execute(known, (one.stream, one.boot)).fetchone()
    pk, project, job, spans, fresh = row
    progress = Progress(spans, fresh)
    new = progress.take(one.seqs, now)
    for level in range(len(LEVEL_NUMBERS)):
        tags[pk, level] = tags_of(project, job, pk, level)
    held = Held(pk)
    held.add([line for begin, end in new for line in one.lines[begin:end]], lines)
    spans, fresh = progress.spans.to_bytes(), progress.fresh_as_text()
    connection.execute(
        _UPDATE_EXECUTION, (one.dropped, spans, fresh, now, held.first_at, held.last_at, pk)
    )
    connection.executemany(_HOLD, held.rows)


def _insert(
    connection: sqlite3.Connection,
    day: int,
    lines: Sequence[New],
    tags: Mapping[tuple[int, int], str],
) -> None:
    # Of all lines that the day has ever had.
    counter, midnight, name = _counter(connection, day), day * DAY, table(day)
    # The index of words takes rising numbers in one go.
    rows = [
        (at - midnight << SHIFT | number & MASK, pk, seq, LEVEL_NUMBERS[level], source, text, kind)
        for number, (at, pk, (seq, _at, level, source, text, kind)) in enumerate(lines, counter)
    ]
    if counter >> SHIFT != counter + len(rows) >> SHIFT:
        rows.sort()
    connection.executemany(f"INSERT INTO lines_{name} VALUES (?, ?, ?, ?, ?, ?, ?)", rows)  # noqa: S608 - a name of our own
    connection.executemany(
        f"INSERT INTO words_{name} (rowid, words, tags) VALUES (?, ?, ?)",  # noqa: S608 - a name of our own
        [
            (row, text if text.isascii() else spaced(text), tags[pk, level])
            for row, pk, _seq, level, _source, text, _kind in rows
        ],
    )
    connection.execute("UPDATE days SET counter = ? WHERE day = ?", (counter + len(rows), day))


def _counter(connection: sqlite3.Connection, day: int) -> int:
    """Lines that the day has ever had; its tables are made where they are not there."""
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
