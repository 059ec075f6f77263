"""Guarded changes by ID, one transaction for each portion."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

from apps.requeststore.engine.flags import NEW, TAKEN
from apps.requeststore.stores import story
from apps.requeststore.stores.base import (
    EndCode,
    Finish,
    GiveBack,
    HistoryStepKind,
    QueueEntry,
    Shard,
    Take,
    TakeCode,
)
from apps.requeststore.stores.guards import LeaseState, why_not_ended, why_not_taken
from apps.requeststore.stores.sqlite import statements
from apps.requeststore.stores.sqlite.files import Files
from apps.requeststore.stores.sqlite.table import Row, SqliteShard, request_of, state_of


def queued(files: Files, shard: Shard, ids: Sequence[int], by: str, now: int, again: bool) -> None:
    """See ``StorageNode.queued``."""
    kind = HistoryStepKind.REQUEUED if again else HistoryStepKind.QUEUED
    values = {"now": now, "step": story.written(now, kind, by)}

    def before(connection: sqlite3.Connection) -> None:
        SqliteShard(connection, shard).many(statements.STAGE_ID, enumerate(ids))

    def work(connection: sqlite3.Connection) -> None:
        table = SqliteShard(connection, shard)
        table.execute(statements.QUEUED, values)
        table.shorten()

    files.writing(shard.database, work, before=before)


def take(
    files: Files,
    shard: Shard,
    entries: list[QueueEntry],
    owner: str,
    now: int,
    deadline: int,
    cutoff: int,
) -> list[Take]:
    """See ``StorageNode.take``."""
    step = story.written(now, HistoryStepKind.TAKEN, owner)

    def before(connection: sqlite3.Connection) -> None:
        rows = ((place, entry.id, entry.biz, entry.ts) for place, entry in enumerate(entries))
        SqliteShard(connection, shard).many(statements.STAGE_ENTRY, rows)

    def work(connection: sqlite3.Connection) -> list[Row]:
        table = SqliteShard(connection, shard)
        table.execute(statements.SEE)
        table.execute(statements.MARK_FREE, {"now": now, "cutoff": cutoff})
        table.execute(statements.TAKE, {"owner": owner, "deadline": deadline, "step": step})
        table.shorten()
        return []

    def after(connection: sqlite3.Connection, _rows: list[Row]) -> list[Row]:
        return SqliteShard(connection, shard).execute(statements.TAKEN).fetchall()

    rows = files.writing(shard.database, work, before=before, after=after)
    rows_by_id = {row[0]: row for row in rows}
    return [
        _taken(entry, rows_by_id.get(entry.id), owner, deadline, cutoff, step) for entry in entries
    ]


def _taken(
    entry: QueueEntry, row: Row | None, owner: str, deadline: int, cutoff: int, step: str
) -> Take:
    if row is None:
        return Take(TakeCode.UNKNOWN)
    _id, mine, biz, ts, flag, _priority, was, until, tries = row[:9]
    if not mine:
        state = LeaseState(biz, ts, flag, was, until, tries)
        return Take(why_not_taken(entry, state, cutoff=cutoff))
    if row[13] is None:
        # Deleted between the change and this read.
        return Take(TakeCode.UNKNOWN)
    steps = story.shortened(story.read(row[12] + step))
    changed = {"flag": TAKEN, "owner": owner, "deadline": deadline, "tries": tries + 1}
    return Take(TakeCode.TAKEN, request_of(row, steps=steps, **changed))


def finish(files: Files, shard: Shard, ends: list[Finish], owner: str, now: int) -> list[EndCode]:
    """See ``StorageNode.finish``."""
    rows = [
        (
            place,
            end.id,
            end.tries,
            end.flag,
            end.result,
            story.written(now, HistoryStepKind.FINISHED, owner, end.text),
        )
        for place, end in enumerate(ends)
    ]
    return _end(files, shard, statements.FINISH, {"now": now}, ends, rows, owner)


def give_back(
    files: Files, shard: Shard, ends: list[GiveBack], owner: str, now: int
) -> list[EndCode]:
    """See ``StorageNode.give_back``."""
    rows = [
        (
            place,
            back.id,
            back.tries,
            NEW,
            b"",
            story.written(now, HistoryStepKind.RETURNED, owner, back.text),
        )
        for place, back in enumerate(ends)
    ]
    return _end(files, shard, statements.GIVE_BACK, {}, ends, rows, owner)


def _end(
    files: Files,
    shard: Shard,
    statement: str,
    values: dict[str, int],
    ends: Sequence[Finish | GiveBack],
    rows: list[Row],
    owner: str,
) -> list[EndCode]:
    def before(connection: sqlite3.Connection) -> None:
        SqliteShard(connection, shard).many(statements.STAGE_END, rows)

    def work(connection: sqlite3.Connection) -> list[Row]:
        table = SqliteShard(connection, shard)
        table.execute(statements.SEE)
        table.execute(statements.MARK_OWN, {"owner": owner})
        table.execute(statement, values)
        return []

    def after(connection: sqlite3.Connection, _rows: list[Row]) -> list[Row]:
        return SqliteShard(connection, shard).execute(statements.STATES).fetchall()

    rows_by_id = {
        row[0]: row for row in files.writing(shard.database, work, before=before, after=after)
    }
    answers: list[EndCode] = []
    for end in ends:
        row = rows_by_id.get(end.id)
        if row is not None and row[1]:
            answers.append(EndCode.DONE)
        else:
            answers.append(why_not_ended(end, state_of(row) if row else None, owner=owner))
    return answers


def reopen(
    files: Files,
    shard: Shard,
    ids: Sequence[int],
    flags: Sequence[int],
    by: str,
    now: int,
    cutoff: int,
) -> list[int]:
    """See ``StorageNode.reopen``. Returns the IDs that changed."""
    ended = {"cutoff": cutoff, "flags": json.dumps(flags)}
    step = story.written(now, HistoryStepKind.REOPENED, by)

    def before(connection: sqlite3.Connection) -> None:
        SqliteShard(connection, shard).many(statements.STAGE_ID, enumerate(ids))

    def work(connection: sqlite3.Connection) -> list[Row]:
        table = SqliteShard(connection, shard)
        table.execute(statements.SEE)
        table.execute(statements.MARK_ENDED, ended)
        table.execute(statements.REOPEN, {"step": step})
        table.shorten()
        return []

    def after(connection: sqlite3.Connection, _rows: list[Row]) -> list[Row]:
        return SqliteShard(connection, shard).execute(statements.STATES).fetchall()

    rows = files.writing(shard.database, work, before=before, after=after)
    return [row[0] for row in rows if row[1]]
