"""Search in PostgreSQL: chooses the index that leads to the newest lines soonest.

The choice is made here: the planner lacks the statistics of a filling table to know that a word is
rare. A word is first looked for among the newest lines, where frequent ones occur, and then in the
GIN index of words, whose matches must be sorted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from apps.joblogs.engine.words import LONGEST_WORD, Phrase
from apps.joblogs.stores.accounts import as_stored, level_numbers
from apps.joblogs.stores.base import Search
from apps.joblogs.stores.days.search import COLUMNS
from apps.joblogs.stores.days.session import SHIFT, Row, StoreSession, table
from apps.joblogs.stores.postgres.schema import WORDS

# Up to this many lines are sorted in memory.
_FEW: Final = 20_000
# Number of newest lines searched for a word: the minimum, and per line wanted.
_WINDOW: Final = 2_000
_WINDOW_EACH: Final = 20
_LINE: Final = "l.id, l.execution, l.seq, l.level, l.source, l.text, l.fingerprint"


@dataclass(slots=True)
class _Conditions:
    """SQL conditions on ``l``, with their values."""

    sql: str
    values: list[Any]

    def __add__(self, other: _Conditions) -> _Conditions:
        return _Conditions(self.sql + other.sql, self.values + other.values)


@dataclass(slots=True)
class _Lanes:
    """Pairs (lane, level) of the wanted lines of a day, and the number of these lines."""

    lanes: list[int]
    levels: list[int]
    lines: int
    # Set for a search in one stream only.
    executions: list[int] | None

    def condition(self) -> _Conditions:
        """Return the condition on a line."""
        if self.executions is not None:
            sql = " AND l.execution = ANY(?) AND l.level = ANY(?)"
            return _Conditions(sql, [self.executions, sorted(set(self.levels))])
        pairs = [lane * 8 + level for lane, level in zip(self.lanes, self.levels, strict=True)]
        return _Conditions(" AND l.lane::bigint * 8 + l.level = ANY(?)", [pairs])


def newest(
    session: StoreSession,
    asked: Search,
    phrases: Sequence[Phrase],
    day: int,
    low: int,
    high: int,
    limit: int,
) -> list[Row]:
    """See ``StoreSession.newest``."""
    lanes = _lanes(session, asked, day)
    if lanes is not None and not lanes.lanes:
        return []
    day_ = _Day(session, table(day), lanes, _exactly(asked, phrases))
    if asked.fingerprint:
        return day_.along("l.fingerprint <> ''", low, high, limit)
    if not phrases:
        return day_.best(low, high, limit)
    window = max(_WINDOW, _WINDOW_EACH * limit)
    rows, lowest = day_.among_newest(low, high, window, limit)
    if len(rows) < limit and lowest is not None:
        rest = limit - len(rows)
        if lanes is not None and lanes.lines <= _FEW:
            rows += day_.best(low, lowest, rest)
        else:
            rows += day_.by_words(phrases, low, lowest, rest)
    return rows


def alike(
    session: StoreSession, asked: Search, phrases: Sequence[Phrase], day: int, low: int, high: int
) -> list[Row]:
    """See ``StoreSession.alike``."""
    lanes = _lanes(session, asked, day)
    if lanes is not None and not lanes.lanes:
        return []
    where = _Conditions(" AND l.id BETWEEN ? AND ?", [low, high - 1]) + _exactly(asked, phrases)
    if lanes is not None:
        where += lanes.condition()
    return session.all(
        "SELECT l.fingerprint, l.execution, count(*), min(l.id), max(l.id)"  # noqa: S608 - names of our own
        f" FROM lines_{table(day)} l WHERE l.fingerprint <> ''{where.sql}"
        " GROUP BY l.fingerprint, l.execution",
        where.values,
    )


def literal(text: str) -> str:
    """Escape the text for a LIKE pattern."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _lanes(session: StoreSession, asked: Search, day: int) -> _Lanes | None:
    """Return the lanes of the wanted lines; None if all lines are wanted."""
    where, values = "", list[Any]([day])
    if asked.projects is not None:
        where += " AND e.project = ANY(?)"
        values.append(sorted(asked.projects))
    if asked.job is not None:
        where += " AND e.job = ?"
        values.append(asked.job)
    if asked.stream:
        where += " AND e.stream = ?"
        values.append(asked.stream)
    if asked.levels:
        where += " AND h.level = ANY(?)"
        values.append(level_numbers(asked.levels))
    if not where:
        return None
    execution = "h.execution" if asked.stream else "0"
    rows = session.all(
        f"SELECT e.lane, h.level, {execution}, CAST(sum(h.lines) AS BIGINT)"  # noqa: S608 - names of our own
        " FROM holdings h JOIN executions e ON e.id = h.execution"
        f" WHERE h.day = ?{where} GROUP BY 1, 2, 3",
        values,
    )
    pairs = sorted({(lane, level) for lane, level, _execution, _lines in rows})
    return _Lanes(
        [lane for lane, _level in pairs],
        [level for _lane, level in pairs],
        sum(lines for _lane, _level, _execution, lines in rows),
        sorted({row[2] for row in rows}) if asked.stream else None,
    )


def _exactly(asked: Search, phrases: Sequence[Phrase]) -> _Conditions:
    """Conditions on each line, independent of the index used."""
    where = _Conditions("", [])
    if asked.fingerprint:
        where += _Conditions(" AND l.fingerprint = ?", [asked.fingerprint])
    for phrase in phrases:
        pattern = f"% {' '.join(_cut(phrase))}{'' if phrase.prefix else ' '}%"
        where += _Conditions(" AND ' ' || l.words || ' ' LIKE ?", [pattern])
    if asked.contains:
        pattern = f"%{literal(as_stored(asked.contains))}%"
        where += _Conditions(' AND l.text ILIKE ? COLLATE "und-x-icu"', [pattern])
    return where


def _cut(phrase: Phrase) -> list[str]:
    return [word[:LONGEST_WORD] for word in phrase.words]


def _query(phrases: Sequence[Phrase]) -> str:
    """Return the phrases as a tsquery."""
    words = {f"'{word}'": None for phrase in phrases for word in _cut(phrase)[:-1]}
    for phrase in phrases:
        words[f"'{_cut(phrase)[-1]}'{':*' if phrase.prefix else ''}"] = None
    return " & ".join(words)


@dataclass(slots=True)
class _Day:
    """Access paths to the newest wanted lines of a day."""

    session: StoreSession
    name: str
    lanes: _Lanes | None
    exactly: _Conditions

    def best(self, low: int, high: int, limit: int) -> list[Row]:
        """Search without the index of words."""
        lanes = self.lanes
        if lanes is None:
            return self.along("true", low, high, limit)
        if lanes.lines <= _FEW and lanes.executions is not None:
            return self.along("true", low, high, limit, sort=True)
        return self._along_lanes(lanes, low, high, limit)

    def along(
        self, first: str, low: int, high: int, limit: int, *, sort: bool = False
    ) -> list[Row]:
        """Search along the ID index or, with ``sort``, along another index with a sort."""
        where = _Conditions(" AND l.id BETWEEN ? AND ?", [low, high - 1]) + self.exactly
        if self.lanes is not None:
            where += self.lanes.condition()
        order = "l.id + 0" if sort else "l.id"
        return self._joined(
            f"SELECT {_LINE} FROM lines_{self.name} l WHERE {first}{where.sql}"  # noqa: S608 - names of our own
            f" ORDER BY {order} DESC LIMIT ?",
            [*where.values, limit],
        )

    def _along_lanes(self, lanes: _Lanes, low: int, high: int, limit: int) -> list[Row]:
        where = _Conditions(" AND l.id BETWEEN ? AND ?", [low, high - 1]) + self.exactly
        if lanes.executions is not None:
            where += _Conditions(" AND l.execution = ANY(?)", [lanes.executions])
        return self._joined(
            f"SELECT {_LINE} FROM unnest(?::int[], ?::int[]) AS t (lane, level)"  # noqa: S608 - names of our own
            f" CROSS JOIN LATERAL (SELECT {_LINE} FROM lines_{self.name} l"
            f" WHERE l.lane = t.lane AND l.level = t.level{where.sql}"
            " ORDER BY l.id DESC LIMIT ?) l ORDER BY l.id DESC LIMIT ?",
            [lanes.lanes, lanes.levels, *where.values, limit, limit],
        )

    def among_newest(
        self, low: int, high: int, window: int, limit: int
    ) -> tuple[list[Row], int | None]:
        """Search among the newest ``window`` lines; return matches and the lowest ID searched, None
        for all.
        """
        where = self.exactly
        if self.lanes is not None:
            where += self.lanes.condition()
        rows = self.session.all(
            f"SELECT min(id), count(*) FROM (SELECT id FROM lines_{self.name}"  # noqa: S608 - names of our own
            " WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT ?) l",
            (low, high - 1, window),
        )
        lowest, count = rows[0]
        if not count:
            return [], None
        matches = self._joined(
            f"SELECT {_LINE} FROM lines_{self.name} l WHERE l.id BETWEEN ? AND ?{where.sql}"  # noqa: S608 - names of our own
            " ORDER BY l.id DESC LIMIT ?",
            [lowest, high - 1, *where.values, limit],
        )
        return matches, lowest if count == window else None

    def by_words(self, phrases: Sequence[Phrase], low: int, high: int, limit: int) -> list[Row]:
        """Search by the index of words, which is unordered: with too many matches, the newer half
        first.
        """
        where = _Conditions(f" AND {WORDS} @@ ?::tsquery", [_query(phrases)]) + self.exactly
        if self.lanes is not None:
            where += self.lanes.condition()
        self.session.execute("SET LOCAL enable_bitmapscan = on")
        self.session.execute("SET LOCAL enable_indexscan = off")
        ids: list[int] = []
        spans = [(low, high)]
        # At first by the index of words alone; then combined with the ID index.
        key = "l.id + 0"
        while spans and len(ids) < limit:
            begin, end = spans.pop()
            rows = self.session.all(
                f"SELECT l.id FROM lines_{self.name} l WHERE {key} BETWEEN ? AND ?{where.sql}"  # noqa: S608 - names of our own
                " LIMIT ?",
                [begin, end - 1, *where.values, _FEW + 1],
            )
            key = "l.id"
            if len(rows) > _FEW and end - begin > 1 << SHIFT:
                middle = (begin + end) // 2
                spans += [(begin, middle), (middle, end)]
            else:
                ids += sorted((pk for (pk,) in rows), reverse=True)
        self.session.execute("SET LOCAL enable_bitmapscan = off")
        self.session.execute("SET LOCAL enable_indexscan = on")
        if not ids:
            return []
        return self._joined(
            f"SELECT {_LINE} FROM lines_{self.name} l WHERE l.id = ANY(?)",  # noqa: S608 - names of our own
            [ids[:limit]],
        )

    def _joined(self, lines: str, values: list[Any]) -> list[Row]:
        """Join the columns of the lines' executions."""
        return self.session.all(
            f"SELECT {COLUMNS} FROM ({lines}) l JOIN executions e ON e.id = l.execution"  # noqa: S608 - names of our own
            " ORDER BY l.id DESC",
            values,
        )
