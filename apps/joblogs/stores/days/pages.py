"""Pages of one log, and the state of its stream."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from apps.joblogs.engine.moments import moment_of
from apps.joblogs.stores.accounts import (
    DAY,
    LEVEL_NAMES,
    LOUD,
    MOST_MISSING,
    ExecutionProgress,
    level_numbers,
)
from apps.joblogs.stores.base import GAP_SECONDS, Ref, StoredLine, StreamState
from apps.joblogs.stores.days.session import SHIFT, Row, StoreSession, table
from yardkit.spans import Spans

_GAP = int(GAP_SECONDS * 1_000_000)
_LINE = "id, execution, seq, level, source, text, fingerprint"
# Limit of SELECTs in one UNION, below SQLite's 500.
_DAYS_AT_ONCE = 200


class ExecutionRow(NamedTuple):
    """Columns shared by all lines of an execution."""

    id: int
    project: int
    job: int
    stream: str
    boot: str
    boot_number: int


def line_of(row: Row, day: int, execution: ExecutionRow) -> StoredLine:
    """Convert a row with the columns ``_LINE``."""
    return StoredLine(
        execution.project,
        execution.job,
        execution.stream,
        execution.boot,
        Ref(execution.boot_number, row[2]),
        moment_of(day * DAY + (row[0] >> SHIFT)),
        LEVEL_NAMES[row[3]],
        row[4],
        row[5],
        row[6],
    )


class Filter(NamedTuple):
    """Additional conditions on lines, as SQL and its values."""

    sql: str
    values: list[Any]


def filtered(session: StoreSession, levels: Collection[str], contains: str = "") -> Filter:
    """Return a filter for lines of these levels (empty: all) that contain ``contains`` (empty:
    all).
    """
    sql, values = "", list[Any]()
    if levels:
        numbers = level_numbers(levels)
        if numbers and numbers[0] >= LOUD:
            # Lets the database use the small index of severe lines.
            sql += f" AND level >= {LOUD}"
        # Unknown levels match no line.
        sql += f" AND level IN ({', '.join(map(str, numbers or [-1]))})"
    if contains:
        part, value = session.containing(contains)
        sql += f" AND {part}"
        values.append(value)
    return Filter(sql, values)


def days_held(session: StoreSession, execution: int, levels: Collection[str]) -> list[int]:
    """Return the days with lines of the execution (of these levels), ascending."""
    rows = session.all(
        f"SELECT DISTINCT day FROM holdings WHERE execution = ?{filtered(session, levels).sql}"  # noqa: S608 - numbers of our own
        " ORDER BY day",
        (execution,),
    )
    return [day for (day,) in rows]


def following(
    session: StoreSession, stream: str, after: Ref, limit: int, where: Filter, now: int
) -> list[StoredLine]:
    """See ``LogStore.page``, with ``after``."""
    lines: list[StoredLine] = []
    rows = session.all(
        "SELECT id, project, job, stream, boot, boot_number, created_at, fresh,"
        " CASE WHEN fresh = '' THEN NULL ELSE spans END"
        " FROM executions WHERE stream = ? AND boot_number >= ? ORDER BY boot_number",
        (stream, after.boot_number),
    )
    for place, row in enumerate(rows):
        execution, created_at = ExecutionRow(*row[:6]), row[6]
        if place and created_at > now - _GAP:
            # The last lines of the previous execution may still be on their way.
            break
        horizon = ExecutionProgress(row[8] or b"", row[7]).horizon(now)
        low = after.seq if execution.boot_number == after.boot_number else -1
        sql = f" AND seq > {low}" + (f" AND seq < {horizon}" if horizon is not None else "")
        wanted = Filter(sql + where.sql, where.values)
        lines += _lines(session, execution, wanted, limit - len(lines))
        if len(lines) >= limit or horizon is not None:
            break
    return lines


def preceding(
    session: StoreSession, stream: str, before: Ref | None, limit: int, where: Filter
) -> list[StoredLine]:
    """See ``LogStore.page``, without ``after``."""
    lines: list[StoredLine] = []
    for execution in reversed(executions_of(session, stream)):
        sql = ""
        if before is not None:
            if execution.boot_number > before.boot_number:
                continue
            if execution.boot_number == before.boot_number:
                sql = f" AND seq < {before.seq}"
        wanted = Filter(sql + where.sql, where.values)
        lines += _lines(session, execution, wanted, limit - len(lines), last=True)
        if len(lines) >= limit:
            break
    return lines[::-1]


def first(session: StoreSession, stream: str, levels: Collection[str]) -> StoredLine | None:
    """See ``LogStore.first``."""
    where = filtered(session, levels)
    for execution in executions_of(session, stream):
        if days_held(session, execution.id, levels):
            lines = _lines(session, execution, where, 1)
            return lines[0] if lines else None
    return None


def find(session: StoreSession, stream: str, ref: Ref) -> StoredLine | None:
    """See ``LogStore.find``."""
    wanted = Filter(f" AND seq = {ref.seq}", [])
    for execution in executions_of(session, stream):
        if execution.boot_number == ref.boot_number:
            return next(iter(_lines(session, execution, wanted, 1)), None)
    return None


def executions_of(session: StoreSession, stream: str) -> list[ExecutionRow]:
    """Return the executions of a stream, the oldest first."""
    rows = session.all(
        "SELECT id, project, job, stream, boot, boot_number FROM executions"
        " WHERE stream = ? ORDER BY boot_number",
        (stream,),
    )
    return [ExecutionRow(*row) for row in rows]


def _lines(
    session: StoreSession, execution: ExecutionRow, where: Filter, limit: int, *, last: bool = False
) -> list[StoredLine]:
    """Return lines ordered by seq or, with ``last``, backwards from there."""
    days = days_held(session, execution.id, ())
    if not days or limit <= 0:
        return []
    order = "ORDER BY seq DESC" if last else "ORDER BY seq"
    rows: list[Row] = []
    for begin in range(0, len(days), _DAYS_AT_ONCE):
        some = days[begin : begin + _DAYS_AT_ONCE]
        # Limit each day, so that merging reads no more rows than needed.
        parts = [
            f"SELECT * FROM (SELECT {_LINE}, {day} FROM lines_{table(day)}"  # noqa: S608 - names and numbers of our own
            f" WHERE execution = {execution.id}{where.sql} {order} LIMIT {limit}) AS part"
            for day in some
        ]
        rows += session.all(
            f"{' UNION ALL '.join(parts)} {order} LIMIT {limit}", where.values * len(some)
        )
    if len(days) > _DAYS_AT_ONCE:
        rows = sorted(rows, key=lambda row: int(row[2]), reverse=last)[:limit]
    return [line_of(row, row[7], execution) for row in rows]


def stream_state(session: StoreSession, stream: str) -> StreamState | None:
    """See ``LogStore.stream_state``."""
    rows = session.all(
        "SELECT boot_number, project, job, dropped, spans, coalesce(first_at, created_at),"
        " coalesce(last_at, created_at),"
        " (SELECT CAST(coalesce(sum(lines), 0) AS BIGINT) FROM holdings"
        " WHERE execution = executions.id),"
        " (SELECT CAST(coalesce(sum(bytes), 0) AS BIGINT) FROM holdings"
        " WHERE execution = executions.id)"
        " FROM executions WHERE stream = ? ORDER BY boot_number",
        (stream,),
    )
    if not rows:
        return None
    spans = {row[0]: Spans(row[4]) for row in rows}
    lines = sum(row[7] for row in rows)
    return StreamState(
        stream=stream,
        project=rows[0][1],
        job=rows[0][2],
        lines=lines,
        bytes=sum(row[8] for row in rows),
        dropped=sum(row[3] for row in rows),
        first_at=moment_of(min(row[5] for row in rows)),
        last_at=moment_of(max(row[6] for row in rows)),
        forgotten=sum(span.count for span in spans.values()) - lines,
        missing=missing_of(spans),
    )


def missing_of(spans: dict[int, Spans]) -> dict[int, list[tuple[int, int]]]:
    """Return the ranges that never arrived, at most ``MOST_MISSING``."""
    missing: dict[int, list[tuple[int, int]]] = {}
    room = MOST_MISSING
    for boot_number, numbers in spans.items():
        gaps = numbers.gaps(0, room)
        if gaps:
            missing[boot_number] = gaps
            room -= len(gaps)
    return missing
