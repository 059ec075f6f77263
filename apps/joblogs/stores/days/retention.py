"""Deletes old lines in small transactions, and drops empty days."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from apps.joblogs.engine.moments import moment_of
from apps.joblogs.stores.accounts import DAY, SILENT
from apps.joblogs.stores.base import Usage
from apps.joblogs.stores.days.session import SHIFT, StoreSession, table

# Limit of lines deleted in one transaction, for which writers may have to wait.
PORTION: Final = 5_000


class _Hold(NamedTuple):
    """Lines of one level of an execution in one day."""

    execution: int
    day: int
    level: int


class _Old(NamedTuple):
    """Line to delete."""

    id: int
    text: str
    hold: _Hold


def delete_some(
    session: StoreSession, project: int, job: int, before: int, levels: list[int] | None, limit: int
) -> int:
    """Delete up to ``limit`` lines older than ``before`` (microseconds), oldest days first.

    A day with lines of this job alone is dropped as a whole, whatever the limit is.
    """
    total = 0
    for day, holds in _held(session, project, job, before, levels).items():
        bound = min(before - day * DAY, DAY)
        whole = bound == DAY and _drop_if(session, day, len(holds))
        if whole:
            total += whole
        else:
            total += _delete_older(session, project, job, holds, bound, limit - total)
        if total >= limit:
            break
    return total


def _held(
    session: StoreSession, project: int, job: int, before: int, levels: list[int] | None
) -> dict[int, list[_Hold]]:
    """Return the days that may have lines to delete, oldest first."""
    if levels is not None and not levels:
        return {}
    chosen = "" if levels is None else f" AND h.level IN ({', '.join(map(str, levels))})"
    rows = session.all(
        "SELECT h.execution, h.day, h.level FROM executions e"  # noqa: S608 - numbers of our own
        " JOIN holdings h ON h.execution = e.id"
        f" WHERE e.project = ? AND e.job = ? AND h.first_at < ?{chosen} ORDER BY 2, 1, 3",
        (project, job, before),
    )
    holds: dict[int, list[_Hold]] = {}
    for row in rows:
        holds.setdefault(row[1], []).append(_Hold(*row))
    return holds


def _drop_if(session: StoreSession, day: int, holds: int) -> int:
    """Drop a day that holds nothing else; return the number of its lines, 0 if it is kept."""
    if _holds_in(session, day) != holds:
        return 0
    session.lock_day(day)
    # Check again under the lock.
    return drop_day(session, day) if _holds_in(session, day) == holds else 0


def _holds_in(session: StoreSession, day: int) -> int:
    count: int = session.all("SELECT count(*) FROM holdings WHERE day = ?", (day,))[0][0]
    return count


def drop_day(session: StoreSession, day: int) -> int:
    """Drop a locked day; return the number of its lines."""
    ((lines,),) = session.all(
        "SELECT CAST(coalesce(sum(lines), 0) AS BIGINT) FROM holdings WHERE day = ?", (day,)
    )
    session.drop_tables(day)
    session.execute("DELETE FROM holdings WHERE day = ?", (day,))
    session.execute("DELETE FROM days WHERE day = ?", (day,))
    return int(lines)


def _delete_older(
    session: StoreSession, project: int, job: int, holds: Sequence[_Hold], bound: int, limit: int
) -> int:
    """Delete lines before ``bound``, in microseconds of the day."""
    total = 0
    for hold in holds:
        rows = session.all(
            f"SELECT id, text FROM lines_{table(hold.day)}"  # noqa: S608 - a name of our own
            " WHERE execution = ? AND level = ? AND id < ? LIMIT ?" + session.FOR_UPDATE,
            (hold.execution, hold.level, bound << SHIFT, limit - total),
        )
        _delete(session, project, job, hold.day, [_Old(pk, text, hold) for pk, text in rows])
        total += len(rows)
        if total >= limit:
            break
        # All older lines are deleted: the day is skipped until its next lines expire.
        session.execute(
            "UPDATE holdings SET first_at = ?"
            " WHERE execution = ? AND day = ? AND level = ? AND first_at < ?",
            (hold.day * DAY + bound, *hold, hold.day * DAY + bound),
        )
    return total


def _delete(session: StoreSession, project: int, job: int, day: int, old: Sequence[_Old]) -> None:
    """Delete these lines and their words, and subtract them from the counts."""
    if not old:
        return
    session.forget(
        day,
        project,
        job,
        [(line.id, line.text, line.hold.execution, line.hold.level) for line in sorted(old)],
    )
    sums: dict[_Hold, list[int]] = {}
    for line in old:
        held = sums.setdefault(line.hold, [0, 0])
        held[0] += 1
        held[1] += len(line.text.encode())
    for hold in sorted(sums):
        session.execute(
            "UPDATE holdings SET lines = lines - ?, bytes = bytes - ?"
            " WHERE execution = ? AND day = ? AND level = ?",
            (*sums[hold], *hold),
        )
        session.execute(
            "DELETE FROM holdings WHERE execution = ? AND day = ? AND level = ? AND lines <= 0",
            hold,
        )


def delete_oldest_some(
    session: StoreSession, project: int, job: int, keep_bytes: int, limit: int
) -> int:
    """Delete up to ``limit`` of the oldest lines until ``keep_bytes`` are left; return how many."""
    rows = session.all(
        "SELECT h.day, CAST(sum(h.bytes) AS BIGINT), count(*) FROM executions e"
        " JOIN holdings h ON h.execution = e.id"
        " WHERE e.project = ? AND e.job = ? GROUP BY h.day ORDER BY h.day",
        (project, job),
    )
    excess = sum(row[1] for row in rows) - keep_bytes
    total = 0
    for day, size, holds in rows:
        if excess <= 0 or total >= limit:
            break
        whole = size <= excess and _drop_if(session, day, holds)
        if whole:
            total += whole
            excess -= size
            continue
        chosen: list[_Old] = []
        for line in _oldest(session, project, job, day, limit - total):
            if excess <= 0:
                break
            chosen.append(line)
            excess -= len(line.text.encode())
        _delete(session, project, job, day, chosen)
        total += len(chosen)
    return total


def _oldest(session: StoreSession, project: int, job: int, day: int, limit: int) -> list[_Old]:
    rows = session.all(
        f"SELECT id, text, execution, level FROM lines_{table(day)}"  # noqa: S608 - a name of our own
        " WHERE execution IN (SELECT id FROM executions WHERE project = ? AND job = ?)"
        " ORDER BY id LIMIT ?" + session.FOR_UPDATE,
        (project, job, limit),
    )
    return [_Old(pk, text, _Hold(execution, day, level)) for pk, text, execution, level in rows]


def usages(session: StoreSession) -> list[Usage]:
    """See ``LogStore.usages``."""
    rows = session.all(
        "SELECT e.project, e.job, CAST(sum(h.lines) AS BIGINT), CAST(sum(h.bytes) AS BIGINT),"
        " min(h.first_at) FROM holdings h JOIN executions e ON e.id = h.execution"
        " GROUP BY e.project, e.job ORDER BY e.project, e.job"
    )
    return [Usage(row[0], row[1], row[2], row[3], moment_of(row[4])) for row in rows]


def prune(session: StoreSession, now: int) -> None:
    """See ``LogStore.prune``."""
    empty = session.all(
        "SELECT day FROM days WHERE NOT EXISTS"
        " (SELECT 1 FROM holdings WHERE holdings.day = days.day) ORDER BY day"
    )
    for (day,) in empty:
        session.lock_day(day)
        if not _holds_in(session, day):
            drop_day(session, day)
    silent = now - int(SILENT.total_seconds()) * 1_000_000
    session.execute(
        "DELETE FROM executions WHERE updated_at < ? AND NOT EXISTS"
        " (SELECT 1 FROM holdings WHERE holdings.execution = executions.id)",
        (silent,),
    )
