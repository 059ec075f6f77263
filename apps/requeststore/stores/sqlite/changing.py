"""Handing out, ending, noting: changes of requests that are named, one transaction a portion."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Final

from apps.requeststore.engine.flags import TAKEN
from apps.requeststore.stores import story
from apps.requeststore.stores.base import (
    EndCode,
    Entry,
    Finish,
    GiveBack,
    Shard,
    StepKind,
    StoredRequest,
    Take,
    TakeCode,
)
from apps.requeststore.stores.judging import State, why_not_ended, why_not_taken
from apps.requeststore.stores.sqlite import statements
from apps.requeststore.stores.sqlite.files import Files
from apps.requeststore.stores.sqlite.table import Row, Table, request_of, state_of

# A transaction stays short, so that the other processes need not wait long for theirs.
PORTION: Final = 1000

Entries = list[tuple[int, Entry]]
Ends = list[tuple[int, Finish]] | list[tuple[int, GiveBack]]


def queued(
    files: Files, shard: Shard, ids: Sequence[int], *, by: str, now: int, again: bool
) -> None:
    """See ``StorageNode.queued``; the ids are distinct."""
    kind = StepKind.REQUEUED if again else StepKind.QUEUED
    values = {"now": now, "step": story.written(now, kind, by)}

    def before(connection: sqlite3.Connection) -> None:
        Table(connection, shard).many(statements.STAGE_ID, enumerate(ids))

    def work(connection: sqlite3.Connection) -> None:
        table = Table(connection, shard)
        table.execute(statements.QUEUED, values)
        table.shorten()

    files.writing(shard.database, work, before=before)


def take(
    files: Files,
    shard: Shard,
    entries: Entries,
    *,
    owner: str,
    now: int,
    deadline: int,
    cutoff: int,
) -> list[Take]:
    """See ``StorageNode.take``; no id is named twice."""
    step = story.written(now, StepKind.TAKEN, owner)

    def before(connection: sqlite3.Connection) -> None:
        rows = ((place, one.id, one.biz, one.ts) for place, one in entries)
        Table(connection, shard).many(statements.STAGE_ENTRY, rows)

    def work(connection: sqlite3.Connection) -> list[Row]:
        table = Table(connection, shard)
        table.execute(statements.SEE)
        table.execute(statements.MARK_FREE, {"now": now, "cutoff": cutoff})
        table.execute(statements.TAKE, {"owner": owner, "deadline": deadline, "step": step})
        table.shorten()
        return []

    def after(connection: sqlite3.Connection, _rows: list[Row]) -> list[Row]:
        return Table(connection, shard).execute(statements.TAKEN).fetchall()

    rows = files.writing(shard.database, work, before=before, after=after)
    found = {row[0]: row for row in rows}
    return [_taken(one, found.get(one.id), owner, deadline, cutoff, step) for _, one in entries]


def _taken(
    entry: Entry, row: Row | None, owner: str, deadline: int, cutoff: int, step: str
) -> Take:
    if row is None:
        return Take(TakeCode.UNKNOWN)
    _id, mine, biz, ts, flag, _priority, was, until, tries = row[:9]
    if not mine:
        state = State(biz, ts, flag, was, until, tries)
        return Take(why_not_taken(entry, state, cutoff=cutoff))
    if row[13] is None:
        # Deleted between the change and this look at it.
        return Take(TakeCode.UNKNOWN)
    steps = story.shortened(story.read(row[12] + step))
    changed = {"flag": TAKEN, "owner": owner, "deadline": deadline, "tries": tries + 1}
    return Take(TakeCode.TAKEN, request_of(row, steps=steps, **changed))


def end(files: Files, shard: Shard, ends: Ends, *, owner: str, now: int) -> list[EndCode]:
    """Finishes, or give-backs: whatever is his gets its flag; no id is named twice."""
    rows: list[Row] = []
    statement = statements.GIVE_BACK
    for place, one in ends:
        if isinstance(one, Finish):
            statement = statements.FINISH
            step = story.written(now, StepKind.FINISHED, owner, one.text)
            rows.append((place, one.id, one.tries, one.flag, one.result, step))
        else:
            step = story.written(now, StepKind.RETURNED, owner, one.text)
            rows.append((place, one.id, one.tries, 0, b"", step))

    def before(connection: sqlite3.Connection) -> None:
        Table(connection, shard).many(statements.STAGE_END, rows)

    def work(connection: sqlite3.Connection) -> list[Row]:
        table = Table(connection, shard)
        table.execute(statements.SEE)
        table.execute(statements.MARK_OWN, {"owner": owner})
        table.execute(statement, {"now": now} if statement == statements.FINISH else {})
        return []

    def after(connection: sqlite3.Connection, _rows: list[Row]) -> list[Row]:
        return Table(connection, shard).execute(statements.STATES).fetchall()

    found = {row[0]: row for row in files.writing(shard.database, work, before=before, after=after)}
    answers: list[EndCode] = []
    for _place, one in ends:
        row = found.get(one.id)
        if row is not None and row[1]:
            answers.append(EndCode.DONE)
        else:
            answers.append(why_not_ended(one, state_of(row) if row else None, owner=owner))
    return answers


def reopen(
    files: Files,
    shard: Shard,
    ids: Sequence[int],
    *,
    flags: Sequence[int],
    by: str,
    now: int,
    cutoff: int,
) -> list[int]:
    """See ``StorageNode.reopen``; the ids are distinct. Those that are new again."""
    ended = {"cutoff": cutoff, "flags": json.dumps([flag for flag in flags if flag > 0])}
    step = story.written(now, StepKind.REOPENED, by)

    def before(connection: sqlite3.Connection) -> None:
        Table(connection, shard).many(statements.STAGE_ID, enumerate(ids))

    def work(connection: sqlite3.Connection) -> list[Row]:
        table = Table(connection, shard)
        table.execute(statements.SEE)
        table.execute(statements.MARK_ENDED, ended)
        table.execute(statements.REOPEN, {"step": step})
        table.shorten()
        return []

    def after(connection: sqlite3.Connection, _rows: list[Row]) -> list[Row]:
        return Table(connection, shard).execute(statements.STATES).fetchall()

    rows = files.writing(shard.database, work, before=before, after=after)
    return [row[0] for row in rows if row[1]]


def start_move(files: Files, shard: Shard, ids: Sequence[int]) -> list[StoredRequest]:
    """See ``StorageNode.start_move``; the ids are distinct. Those that are not taken."""

    def before(connection: sqlite3.Connection) -> None:
        Table(connection, shard).many(statements.STAGE_ID, enumerate(ids))

    def work(connection: sqlite3.Connection) -> list[Row]:
        table = Table(connection, shard)
        table.execute(statements.SEE_MOVING)
        table.execute(statements.MOVE)
        return []

    def look(connection: sqlite3.Connection, _rows: list[Row]) -> list[Row]:
        return Table(connection, shard).execute(statements.MOVED).fetchall()

    rows = files.writing(shard.database, work, before=before, after=look)
    return [request_of(row) for row in rows]


def undo_move(files: Files, shard: Shard, ids: Sequence[int]) -> int:
    """See ``StorageNode.undo_move``; the ids are distinct."""

    def before(connection: sqlite3.Connection) -> None:
        Table(connection, shard).many(statements.STAGE_ID, enumerate(ids))

    def work(connection: sqlite3.Connection) -> int:
        table = Table(connection, shard)
        table.execute(statements.SEE_MOVED)
        return table.execute(statements.UNDO_MOVE).rowcount

    return files.writing(shard.database, work, before=before)


def end_move(files: Files, shard: Shard, ids: Sequence[int]) -> int:
    """See ``StorageNode.end_move``; the ids are distinct."""

    def before(connection: sqlite3.Connection) -> None:
        Table(connection, shard).many(statements.STAGE_ID, enumerate(ids))

    def work(connection: sqlite3.Connection) -> int:
        table = Table(connection, shard)
        table.execute(statements.SEE_MOVED)
        table.execute(statements.DELETE_DATA)
        return table.execute(statements.DELETE).rowcount

    return files.writing(shard.database, work, before=before)
