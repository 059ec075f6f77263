"""Search and error counts, day by day, the newest first."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from apps.joblogs.engine.moments import microseconds, moment_of
from apps.joblogs.engine.words import Phrase, phrases_of
from apps.joblogs.stores.accounts import DAY
from apps.joblogs.stores.base import BadQuery, ErrorCount, FoundLines, Search, StoredLine
from apps.joblogs.stores.days.pages import ExecutionRow, line_of
from apps.joblogs.stores.days.session import SHIFT, Row, StoreSession, table

COLUMNS: Final = (
    "l.id, l.execution, l.seq, l.level, l.source, l.text, l.fingerprint,"
    " e.id, e.project, e.job, e.stream, e.boot, e.boot_number"
)
_CURSOR: Final = re.compile(r"([0-9]{1,6})-([0-9]{1,19})")
_AT_ONCE: Final = 500


def search(session: StoreSession, asked: Search, cursor: str, limit: int) -> FoundLines:
    """See ``LogStore.search``."""
    place, phrases = _place(cursor), _phrases(asked)
    rows: list[tuple[int, Row]] = []
    for day, low, high in _days(session, asked):
        if place is not None:
            if day > place[0]:
                continue
            if day == place[0]:
                high = min(high, place[1])
        room = limit + 1 - len(rows)
        rows += [(day, row) for row in session.newest(asked, phrases, day, low, high, room)]
        if len(rows) > limit:
            break
    more = f"{rows[limit - 1][0]}-{rows[limit - 1][1][0]}" if len(rows) > limit else ""
    return FoundLines([_line(row, day) for day, row in rows[:limit]], more)


def _line(row: Row, day: int) -> StoredLine:
    return line_of(row, day, ExecutionRow(*row[7:13]))


def _place(cursor: str) -> tuple[int, int] | None:
    """Parse a cursor: day and ID of the last line returned."""
    if not cursor:
        return None
    match = _CURSOR.fullmatch(cursor)
    if match is None or int(match[2]) >= 2**63:
        raise BadQuery(f"{cursor[:40]!r} is no cursor of a search")
    return int(match[1]), int(match[2])


def _phrases(asked: Search) -> list[Phrase]:
    phrases = phrases_of(asked.text)
    if asked.text.strip() and not phrases:
        raise BadQuery(f"there is no word in {asked.text[:40]!r} that could be looked for")
    return phrases


def _days(session: StoreSession, asked: Search) -> Iterator[tuple[int, int, int]]:
    """Yield the days to search, the newest first, with their range of IDs (end excluded)."""
    if asked.projects is not None and not asked.projects:
        return
    since = microseconds(asked.since) if asked.since is not None else 0
    until = microseconds(asked.until) if asked.until is not None else 2**62
    rows = session.all(
        "SELECT day FROM days WHERE day BETWEEN ? AND ? ORDER BY day DESC",
        (since // DAY, until // DAY),
    )
    for (day,) in rows:
        low = max(since - day * DAY, 0) << SHIFT
        high = min(until - day * DAY, DAY) << SHIFT
        if low < high:
            yield day, low, high


@dataclass(slots=True)
class _Kind:
    """Accumulated counts of one error group."""

    count: int = 0
    streams: set[str] = field(default_factory=set)
    first: int = 2**62
    # (day, ID) of the newest line.
    last: tuple[int, int] = (-1, -1)


def groups(session: StoreSession, asked: Search, limit: int) -> list[ErrorCount]:
    """See ``LogStore.groups``."""
    phrases = _phrases(asked)
    kinds: dict[tuple[int, int, str], _Kind] = {}
    known: dict[int, tuple[int, int, str]] = {}
    for day, low, high in _days(session, asked):
        rows = session.alike(asked, phrases, day, low, high)
        _learn(session, known, {row[1] for row in rows})
        for fingerprint, execution, count, first, last in rows:
            project, job, stream = known[execution]
            kind = kinds.setdefault((project, job, fingerprint), _Kind())
            kind.count += count
            kind.streams.add(stream)
            kind.first = min(kind.first, day * DAY + (first >> SHIFT))
            kind.last = max(kind.last, (day, last))
    newest = sorted(kinds.items(), key=lambda item: item[1].last, reverse=True)[:limit]
    return [_group(session, key, kind) for key, kind in newest]


def _learn(
    session: StoreSession, known: dict[int, tuple[int, int, str]], executions: set[int]
) -> None:
    """Load project, job and stream of these executions."""
    unknown = sorted(executions - known.keys())
    for begin in range(0, len(unknown), _AT_ONCE):
        numbers = ", ".join(map(str, unknown[begin : begin + _AT_ONCE]))
        for row in session.all(
            f"SELECT id, project, job, stream FROM executions WHERE id IN ({numbers})"  # noqa: S608 - numbers of our own
        ):
            known[row[0]] = row[1:]


def _group(session: StoreSession, key: tuple[int, int, str], kind: _Kind) -> ErrorCount:
    day, last = kind.last
    row = session.all(
        f"SELECT {COLUMNS} FROM lines_{table(day)} l"  # noqa: S608 - names of our own
        " JOIN executions e ON e.id = l.execution WHERE l.id = ?",
        (last,),
    )[0]
    return ErrorCount(
        project=key[0],
        job=key[1],
        fingerprint=key[2],
        count=kind.count,
        streams=len(kind.streams),
        first_at=moment_of(kind.first),
        last_at=moment_of(day * DAY + (last >> SHIFT)),
        sample=_line(row, day),
    )
