"""Making of shards, inserts, and sweeps."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from apps.requeststore.engine.flags import NEW, TAKEN, is_final
from apps.requeststore.stores import story
from apps.requeststore.stores.base import HistoryStepKind, NewRequest, Shard, StoredRequest
from apps.requeststore.stores.sqlite import statements
from apps.requeststore.stores.sqlite.files import Files
from apps.requeststore.stores.sqlite.table import Row, SqliteShard, request_of

# Staged bytes beyond which the connection is closed afterwards.
_KEPT_BYTES: Final = 2 * 1024 * 1024


def insert(
    files: Files, shard: Shard, requests: Sequence[NewRequest], by: str, now: int
) -> list[bool]:
    """See ``StorageNode.insert``."""
    step = story.written(now, HistoryStepKind.STORED, by)

    def before(connection: sqlite3.Connection) -> None:
        rows = (
            (place, request.id, request.biz, request.ts, request.priority, request.data)
            for place, request in enumerate(requests)
        )
        SqliteShard(connection, shard).many(statements.STAGE, rows)

    def work(connection: sqlite3.Connection) -> list[bool]:
        table = SqliteShard(connection, shard)
        table.execute(statements.SEE_IDS)
        table.execute(statements.INSERT, (step,))
        table.execute(statements.INSERT_DATA)
        return []

    keep = sum(len(request.data) for request in requests) <= _KEPT_BYTES
    return files.writing(shard.database, work, before=before, after=_new, make=True, keep=keep)


def receive(
    files: Files, shard: Shard, requests: Sequence[StoredRequest], by: str, now: int
) -> list[bool]:
    """Return which were new; see ``StorageNode.receive``."""
    step = story.written(now, HistoryStepKind.MOVED, by)

    def before(connection: sqlite3.Connection) -> None:
        rows = ((place, *story.whole_row(request, step)) for place, request in enumerate(requests))
        SqliteShard(connection, shard).many(statements.STAGE_WHOLE, rows)

    def work(connection: sqlite3.Connection) -> list[bool]:
        table = SqliteShard(connection, shard)
        table.execute(statements.SEE_IDS)
        table.execute(statements.RECEIVE)
        table.execute(statements.INSERT_DATA)
        return []

    keep = sum(len(request.data) for request in requests) <= _KEPT_BYTES
    return files.writing(shard.database, work, before=before, after=_new, make=True, keep=keep)


def _new(connection: sqlite3.Connection, _none: list[bool]) -> list[bool]:
    return [bool(new) for _place, new in connection.execute(statements.IS_NEW)]


def overdue(
    files: Files, shard: Shard, now: int, cutoff: int, limit: int, by: str
) -> list[StoredRequest]:
    """See ``StorageNode.overdue``."""
    step = story.written(now, HistoryStepKind.OVERDUE, by)

    def work(connection: sqlite3.Connection) -> list[Row]:
        table = SqliteShard(connection, shard)
        values = {"now": now, "cutoff": cutoff, "limit": limit}
        if table.execute(statements.SEE_OVERDUE, values).rowcount:
            table.execute(statements.OVERDUE, {"step": step})
        return []

    def after(connection: sqlite3.Connection, _rows: list[Row]) -> list[Row]:
        text = f"SELECT s.id, s.mine, {statements.SEEN} FROM temp.seen AS s"  # noqa: S608 - ours
        return connection.execute(text).fetchall()

    rows = files.writing(shard.database, work, before=_nothing, after=after)
    return [request_of(row, flag=NEW, deadline=0, queued_at=0) for row in rows]


def expire(files: Files, shard: Shard, cutoff: int, limit: int, by: str, now: int) -> int:
    """See ``StorageNode.expire``."""
    step = story.written(now, HistoryStepKind.EXPIRED, by)

    def work(connection: sqlite3.Connection) -> int:
        table = SqliteShard(connection, shard)
        deleted = 0
        for flag in (NEW, TAKEN):
            values: dict[str, Any] = {"flag": flag, "cutoff": cutoff, "limit": limit - deleted}
            deleted += table.execute(statements.SEE_EXPIRED, values).rowcount
        if deleted:
            table.execute(statements.EXPIRE, {"now": now, "step": step})
        return deleted

    return files.writing(shard.database, work, before=_nothing)


def delete(files: Files, shard: Shard, before: int, limit: int) -> int:
    """See ``StorageNode.delete``."""

    def work(connection: sqlite3.Connection) -> int:
        table = SqliteShard(connection, shard)
        deleted = 0
        for flag in [flag for flag in table.flags() if is_final(flag)]:
            values = {"flag": flag, "before": before, "limit": limit - deleted}
            deleted += table.execute(statements.SEE_OLD, values).rowcount
        if deleted:
            table.execute(statements.DELETE_DATA)
            table.execute(statements.DELETE)
        return deleted

    deleted = files.writing(shard.database, work, before=_nothing)
    if deleted:
        # Shrink the file in small steps.
        with files.connection(shard.database) as connection:
            connection.execute("PRAGMA incremental_vacuum(1000)").fetchall()
    return deleted


def start_move(files: Files, shard: Shard, ids: Sequence[int]) -> list[StoredRequest]:
    """See ``StorageNode.start_move``; returns those that are not leased."""

    def before(connection: sqlite3.Connection) -> None:
        SqliteShard(connection, shard).many(statements.STAGE_ID, enumerate(ids))

    def work(connection: sqlite3.Connection) -> list[Row]:
        table = SqliteShard(connection, shard)
        table.execute(statements.SEE_MOVING)
        table.execute(statements.MOVE)
        return []

    def look(connection: sqlite3.Connection, _rows: list[Row]) -> list[Row]:
        return SqliteShard(connection, shard).execute(statements.MOVED).fetchall()

    rows = files.writing(shard.database, work, before=before, after=look)
    return [request_of(row) for row in rows]


def undo_move(files: Files, shard: Shard, ids: Sequence[int]) -> int:
    """See ``StorageNode.undo_move``."""

    def before(connection: sqlite3.Connection) -> None:
        SqliteShard(connection, shard).many(statements.STAGE_ID, enumerate(ids))

    def work(connection: sqlite3.Connection) -> int:
        return SqliteShard(connection, shard).execute(statements.UNDO_MOVE).rowcount

    return files.writing(shard.database, work, before=before)


def end_move(files: Files, shard: Shard, ids: Sequence[int]) -> int:
    """See ``StorageNode.end_move``."""

    def before(connection: sqlite3.Connection) -> None:
        SqliteShard(connection, shard).many(statements.STAGE_ID, enumerate(ids))

    def work(connection: sqlite3.Connection) -> int:
        table = SqliteShard(connection, shard)
        table.execute(statements.SEE_MOVED)
        table.execute(statements.DELETE_DATA)
        return table.execute(statements.DELETE).rowcount

    return files.writing(shard.database, work, before=before)


def _nothing(_connection: sqlite3.Connection) -> None:
    """Stage nothing; temporary tables are emptied all the same."""
