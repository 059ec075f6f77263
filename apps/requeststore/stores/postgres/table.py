"""Table of one shard, and conversion of its rows."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, LiteralString

import psycopg
from psycopg import sql

from apps.requeststore.stores import story
from apps.requeststore.stores.base import HistoryStep, Shard, StoredRequest
from apps.requeststore.stores.guards import LeaseState
from apps.requeststore.stores.postgres import statements
from apps.runtime.engine.postgres_pool import Cursor, Row

_LOCK: Final = 0x5EED4


class PostgresShard:
    """Runs statements with the names of one shard."""

    def __init__(self, cursor: Cursor, shard: Shard) -> None:
        self._cursor = cursor
        self._shard = shard

    def execute(self, statement: LiteralString, values: Any) -> Cursor:
        """Run one statement of ``statements``."""
        return self._cursor.execute(text_of(statement, self._shard), values)

    def rows(self, statement: LiteralString, values: Any) -> list[Row]:
        """Run one statement and return its rows."""
        return self.execute(statement, values).fetchall()

    def states(self, ids: list[int]) -> dict[int, LeaseState]:
        """Return the states of these IDs."""
        rows = self.rows(statements.STATES, {"ids": ids}) if ids else []
        return {row[0]: LeaseState(*row[1:]) for row in rows}

    def shorten(self, rows: list[Row]) -> None:
        """Cut histories that have become too long, given (ID, history)."""
        long = [row for row in rows if len(row[1]) >= story.LONG_STORY]
        changed = [(id_, shorter) for id_, text in long if (shorter := story.shorter(text))]
        if changed:
            ids, texts = [row[0] for row in changed], [row[1] for row in changed]
            self.execute(statements.SHORTEN, {"ids": ids, "steps": texts})

    def make(self) -> None:
        """Make the table and indexes unless they exist."""
        if self._exists():
            return
        self._lock()
        if self._exists():
            return
        table = sql.Identifier(self._shard.database, self._shard.collection)
        schema = sql.Identifier(self._shard.database)
        self._cursor.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(schema))
        for statement in statements.TABLE:
            self._cursor.execute(sql.SQL(statement).format(t=table))
        comment = sql.SQL("COMMENT ON TABLE {} IS {}")
        self._cursor.execute(comment.format(table, sql.Literal(statements.MARK)))

    def drop(self) -> None:
        """Drop the table, and its schema when it is the last one."""
        self._lock()
        table = sql.Identifier(self._shard.database, self._shard.collection)
        self._cursor.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(table))
        left = "SELECT count(*) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"
        self._cursor.execute(left + " WHERE n.nspname = %s", [self._shard.database])
        if not one_row(self._cursor)[0]:
            schema = sql.Identifier(self._shard.database)
            self._cursor.execute(sql.SQL("DROP SCHEMA IF EXISTS {}").format(schema))

    def _lock(self) -> None:
        self._cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])

    def _exists(self) -> bool:
        """Query the catalog: to_regclass() misses tables made since the snapshot."""
        values = [self._shard.database, self._shard.collection]
        return bool(one_row(self._cursor.execute(statements.IS_THERE, values))[0])


@lru_cache(maxsize=10_000)
def text_of(statement: LiteralString, shard: Shard) -> bytes:
    """Return a statement with the names of a shard."""
    table = sql.Identifier(shard.database, shard.collection)
    name = sql.Literal(table.as_string(None))
    return sql.SQL(statement).format(t=table, name=name).as_bytes(None)


def one_row(cursor: Cursor) -> Row:
    """Return the next row. Raises ``InternalError`` without one."""
    row = cursor.fetchone()
    if row is None:
        raise psycopg.InternalError("no row")
    return row


def request_of(row: Row) -> StoredRequest:
    """Convert a row of ``_SHORT`` or ``_WHOLE`` columns."""
    steps: list[HistoryStep] = []
    data = b""
    if len(row) > 11:
        steps, data = story.shortened(story.read(row[11])), row[12]
    return StoredRequest(
        id=row[0],
        biz=row[1],
        ts=row[2],
        flag=row[3],
        priority=row[4],
        owner=row[5],
        deadline=row[6],
        tries=row[7],
        queued_at=row[8],
        finished_at=row[9],
        result=row[10],
        steps=steps,
        data=data,
    )
