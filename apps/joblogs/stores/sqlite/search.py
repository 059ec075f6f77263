"""Search in SQLite: by the FTS5 index whenever a word or a tag is given."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, NamedTuple

from apps.joblogs.engine.words import Phrase
from apps.joblogs.stores.accounts import level_numbers
from apps.joblogs.stores.base import Search
from apps.joblogs.stores.days.pages import Filter
from apps.joblogs.stores.days.search import COLUMNS
from apps.joblogs.stores.days.session import Row, table
from apps.joblogs.stores.sqlite.schema import any_of, containing, matching

_JOINED = " CROSS JOIN executions e ON e.id = l.execution"


class _Question(NamedTuple):
    """Query. ``match``: the FTS5 expression, "" if none; ``where``: all other conditions."""

    match: str
    where: Filter


def _question(
    connection: sqlite3.Connection, asked: Search, phrases: Sequence[Phrase]
) -> _Question | None:
    """Convert the conditions to a query; None if nothing can match."""
    parts, sql, values = list[str](), "", list[Any]()
    if asked.projects is not None:
        parts.append(any_of("p", sorted(asked.projects)))
        sql += f" AND e.project IN ({', '.join(str(int(project)) for project in asked.projects)})"
    if asked.job is not None:
        parts.append(any_of("j", [asked.job]))
        sql += f" AND e.job = {int(asked.job)}"
    if asked.stream:
        rows = connection.execute("SELECT id FROM executions WHERE stream = ?", (asked.stream,))
        executions = [pk for (pk,) in rows]
        if not executions:
            return None
        parts.append(any_of("e", executions))
        sql += f" AND l.execution IN ({', '.join(map(str, executions))})"
    if asked.levels:
        numbers = level_numbers(asked.levels)
        if not numbers:
            return None
        parts.append(any_of("l", numbers))
        sql += f" AND l.level IN ({', '.join(map(str, numbers))})"
    if asked.fingerprint:
        # Errors have an index of their own.
        parts = []
        # Redundant condition, without which SQLite does not use the partial index.
        sql += " AND l.fingerprint <> '' AND l.fingerprint = ?"
        values.append(asked.fingerprint)
    else:
        # The FTS5 index covers all of these conditions.
        sql = ""
    parts += matching(phrases)
    if asked.contains:
        part, value = containing(asked.contains, "l.text")
        sql += f" AND {part}"
        values.append(value)
    return _Question(" AND ".join(parts), Filter(sql, values))


def newest(
    connection: sqlite3.Connection,
    asked: Search,
    phrases: Sequence[Phrase],
    day: int,
    low: int,
    high: int,
    limit: int,
) -> list[Row]:
    """See ``StoreSession.newest``."""
    question = _question(connection, asked, phrases)
    if question is None:
        return []
    match, where = question
    name, values = table(day), [low, high - 1, *where.values]
    source, key, sql = f"lines_{name} l{_JOINED}", "l.id", ""
    if match:
        values.append(match)
        if asked.fingerprint:
            sql = f" AND l.id IN (SELECT rowid FROM words_{name} WHERE words_{name} MATCH ?)"  # noqa: S608 - names of our own
        else:
            source = f"words_{name} w CROSS JOIN lines_{name} l ON l.id = w.rowid{_JOINED}"
            key, sql = "w.rowid", f" AND words_{name} MATCH ?"
    return connection.execute(
        f"SELECT {COLUMNS} FROM {source} WHERE {key} BETWEEN ? AND ?{where.sql}{sql}"  # noqa: S608 - names and numbers of our own
        f" ORDER BY {key} DESC LIMIT ?",
        (*values, limit),
    ).fetchall()


def alike(
    connection: sqlite3.Connection,
    asked: Search,
    phrases: Sequence[Phrase],
    day: int,
    low: int,
    high: int,
) -> list[Row]:
    """See ``StoreSession.alike``."""
    question = _question(connection, asked, phrases)
    if question is None:
        return []
    match, where = question
    name, sql, values = table(day), "", [low, high - 1, *where.values]
    if match:
        sql = f" AND l.id IN (SELECT rowid FROM words_{name} WHERE words_{name} MATCH ?)"  # noqa: S608 - names of our own
        values.append(match)
    joined = _JOINED if "e." in where.sql else ""
    return connection.execute(
        "SELECT l.fingerprint, l.execution, count(*), min(l.id), max(l.id)"  # noqa: S608 - names of our own
        f" FROM lines_{name} l INDEXED BY lines_{name}_alike{joined}"
        " WHERE l.fingerprint <> '' AND l.id BETWEEN ? AND ?"
        f"{where.sql}{sql} GROUP BY l.fingerprint, l.execution",
        values,
    ).fetchall()
