"""The port on PostgreSQL: a method is a transaction with one statement, or two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, LiteralString, TypeVar

import psycopg
from psycopg import sql

from apps.requeststore.engine.flags import NEW, TAKEN, is_final
from apps.requeststore.stores import story
from apps.requeststore.stores.base import (
    EndCode,
    Entry,
    Finish,
    GiveBack,
    NewRequest,
    NodeHealth,
    Shard,
    Size,
    SlowOperation,
    Step,
    StepKind,
    StoredRequest,
    Take,
    TakeCode,
)
from apps.requeststore.stores.checked import CheckedNode
from apps.requeststore.stores.judging import State, why_not_ended, why_not_taken
from apps.requeststore.stores.postgres import statements
from apps.requeststore.stores.postgres.pool import APPLICATION, CONNECTIONS, Missing, Pool
from apps.runtime.engine.postgres_pool import WAIT_SECONDS, Cursor, Row

T = TypeVar("T")

_LOCK: Final = 0x5EED4


class PostgresNode(CheckedNode):
    """See ``stores.base.StorageNode``. Nothing is asked of the server before the first call.

    Raises:
        BadSetting: the address cannot be read.
    """

    def __init__(
        self, url: str, *, connections: int = CONNECTIONS, wait_seconds: float = WAIT_SECONDS
    ) -> None:
        self._pool = Pool(url, connections=connections, wait_seconds=wait_seconds)
        self._made: set[Shard] = set()

    # --- storing ----------------------------------------------------------------------------

    def _ensure(self, shard: Shard, delete_after_seconds: int) -> None:
        del delete_after_seconds  # by ``delete``: the server has no such index
        if shard not in self._made:
            self._pool.run(lambda cursor: _make(cursor, shard))
            self._made.add(shard)

    def _insert(self, shard: Shard, requests: list[NewRequest], by: str, now: int) -> list[bool]:
        ordered = sorted(requests, key=lambda one: one.id)
        values = {
            "step": story.written(now, StepKind.STORED, by),
            "ids": [one.id for one in ordered],
            "bizzes": [one.biz for one in ordered],
            "times": [one.ts for one in ordered],
            "priorities": [one.priority for one in ordered],
            "datas": [one.data for one in ordered],
        }
        new = self._store(shard, statements.INSERT, values)
        return [one.id in new for one in requests]

    def _receive(self, shard: Shard, requests: list[StoredRequest], by: str, now: int) -> int:
        step = story.written(now, StepKind.MOVED, by)
        rows = [
            (
                one.id,
                one.biz,
                one.ts,
                one.flag,
                one.priority,
                one.owner,
                one.deadline,
                one.tries,
                one.queued_at,
                one.finished_at,
                one.result,
                story.story_of(one.steps) + step,
                one.data,
            )
            for one in sorted(requests, key=lambda one: one.id)
        ]
        columns = [list(column) for column in zip(*rows, strict=True)]
        return len(self._store(shard, statements.RECEIVE, columns))

    def _store(self, shard: Shard, statement: LiteralString, values: Any) -> set[int]:
        """Which ids are new; into a shard that is made when it was dropped, or never made."""

        def work(cursor: Cursor) -> set[int]:
            return {row[0] for row in _all(cursor, shard, statement, values)}

        try:
            return self._pool.run(work)
        except Missing:
            self._made.discard(shard)
            self._ensure(shard, 0)
            return self._pool.run(work)

    # --- changing ---------------------------------------------------------------------------

    def _queued(self, shard: Shard, ids: list[int], by: str, now: int, again: bool) -> None:
        kind = StepKind.REQUEUED if again else StepKind.QUEUED
        values = {"ids": ids, "now": now, "step": story.written(now, kind, by)}

        def work(cursor: Cursor) -> None:
            _shorten(cursor, shard, _all(cursor, shard, statements.QUEUED, values))

        self._run(work, None)

    def _take(
        self, shard: Shard, entries: list[Entry], owner: str, now: int, deadline: int, cutoff: int
    ) -> list[Take]:
        values = {
            "ids": [one.id for one in entries],
            "times": [one.ts for one in entries],
            "bizzes": [one.biz for one in entries],
            "owner": owner,
            "deadline": deadline,
            "now": now,
            "cutoff": cutoff,
            "step": story.written(now, StepKind.TAKEN, owner),
        }

        def work(cursor: Cursor) -> tuple[dict[int, StoredRequest], dict[int, State]]:
            rows = _all(cursor, shard, statements.TAKE, values)
            _shorten(cursor, shard, _long([(row[0], row[11]) for row in rows]))
            taken = {row[0]: _request(row) for row in rows}
            others = [one.id for one in entries if one.id not in taken]
            return taken, _states(cursor, shard, others)

        nothing: tuple[dict[int, StoredRequest], dict[int, State]] = {}, {}
        taken, states = self._run(work, nothing)
        return [
            Take(TakeCode.TAKEN, taken[one.id])
            if one.id in taken
            else Take(why_not_taken(one, states.get(one.id), cutoff=cutoff))
            for one in entries
        ]

    def _finish(self, shard: Shard, ends: list[Finish], owner: str, now: int) -> list[EndCode]:
        values = {
            "flags": [one.flag for one in ends],
            "results": [one.result for one in ends],
            "now": now,
        }
        return self._end(shard, statements.FINISH, ends, owner, now, StepKind.FINISHED, values)

    def _give_back(self, shard: Shard, ends: list[GiveBack], owner: str, now: int) -> list[EndCode]:
        return self._end(shard, statements.GIVE_BACK, ends, owner, now, StepKind.RETURNED, {})

    def _end(
        self,
        shard: Shard,
        statement: LiteralString,
        ends: Sequence[Finish | GiveBack],
        owner: str,
        now: int,
        kind: StepKind,
        more: dict[str, Any],
    ) -> list[EndCode]:
        values = {
            "ids": [one.id for one in ends],
            "tries": [one.tries for one in ends],
            "steps": [story.written(now, kind, owner, one.text) for one in ends],
            "owner": owner,
            **more,
        }

        def work(cursor: Cursor) -> tuple[set[int], dict[int, State]]:
            done = {row[0] for row in _all(cursor, shard, statement, values)}
            others = [one.id for one in ends if one.id not in done]
            return done, _states(cursor, shard, others)

        nothing: tuple[set[int], dict[int, State]] = set(), {}
        done, states = self._run(work, nothing)
        return [
            EndCode.DONE if one.id in done else why_not_ended(one, states.get(one.id), owner=owner)
            for one in ends
        ]

    # --- reading ----------------------------------------------------------------------------

    def _find(self, shard: Shard, ids: list[int]) -> list[StoredRequest]:
        return [_request(row) for row in self._rows(shard, statements.FIND, {"ids": ids})]

    def _page(
        self,
        shard: Shard,
        biz: str,
        flag: int | None,
        since: int,
        until: int,
        after: tuple[int, int],
        limit: int,
    ) -> list[StoredRequest]:
        values = {
            "biz": biz,
            "flag": flag,
            "since": since,
            "until": until,
            "after_ts": after[0],
            "after_id": after[1],
            "limit": limit,
        }
        statement = statements.PAGE if flag is None else statements.PAGE_OF_FLAG
        return [_request(row) for row in self._rows(shard, statement, values)]

    def _orphans(self, shard: Shard, before: int, cutoff: int, limit: int) -> list[Entry]:
        values = {"before": before, "cutoff": cutoff, "limit": limit}
        return [Entry(*row) for row in self._rows(shard, statements.ORPHANS, values)]

    def _forgotten(self, shard: Shard, before: int, cutoff: int, limit: int) -> list[Entry]:
        values = {"before": before, "cutoff": cutoff, "limit": limit}
        return [Entry(*row) for row in self._rows(shard, statements.FORGOTTEN, values)]

    def _count(self, shard: Shard, since: int, until: int) -> dict[int, int]:
        return dict(self._rows(shard, statements.COUNT, {"since": since, "until": until}))

    def _oldest(self, shard: Shard, flag: int) -> int | None:
        rows = self._rows(shard, statements.OLDEST, {"flag": flag})
        return rows[0][0] if rows else None

    def _size(self, shard: Shard) -> Size:
        rows = self._rows(shard, statements.SIZE, None)
        return Size(*rows[0]) if rows and rows[0][0] else Size(0, 0)

    # --- sweeping and moving ----------------------------------------------------------------

    def _overdue(
        self, shard: Shard, now: int, cutoff: int, limit: int, by: str
    ) -> list[StoredRequest]:
        values = {
            "now": now,
            "cutoff": cutoff,
            "limit": limit,
            "step": story.written(now, StepKind.OVERDUE, by),
        }
        return [_request(row) for row in self._rows(shard, statements.OVERDUE, values)]

    def _expire(self, shard: Shard, cutoff: int, limit: int, by: str, now: int) -> int:
        step = story.written(now, StepKind.EXPIRED, by)

        def work(cursor: Cursor) -> int:
            done = 0
            for flag in (NEW, TAKEN):
                values = {"flag": flag, "cutoff": cutoff, "limit": limit - done}
                cursor.execute(
                    _text(statements.EXPIRE, shard), {**values, "now": now, "step": step}
                )
                done += cursor.rowcount
            return done

        return self._run(work, 0)

    def _delete(self, shard: Shard, before: int, limit: int) -> int:
        def work(cursor: Cursor) -> int:
            deleted = 0
            flags = [row[0] for row in _all(cursor, shard, statements.FLAGS, None)]
            for flag in filter(is_final, flags):
                values = {"flag": flag, "before": before, "limit": limit - deleted}
                cursor.execute(_text(statements.DELETE, shard), values)
                deleted += cursor.rowcount
            return deleted

        return self._run(work, 0)

    def _reopen(
        self, shard: Shard, ids: list[int], flags: list[int], by: str, now: int, cutoff: int
    ) -> list[int]:
        if not flags:
            return []
        step = story.written(now, StepKind.REOPENED, by)
        values = {"ids": ids, "flags": flags, "cutoff": cutoff, "step": step}

        def work(cursor: Cursor) -> list[int]:
            rows = _all(cursor, shard, statements.REOPEN, values)
            _shorten(cursor, shard, _long(rows))
            return [row[0] for row in rows]

        return self._run(work, [])

    def _start_move(self, shard: Shard, ids: list[int]) -> list[StoredRequest]:
        return [_request(row) for row in self._rows(shard, statements.START_MOVE, {"ids": ids})]

    def _undo_move(self, shard: Shard, ids: list[int]) -> int:
        return self._changed(shard, statements.UNDO_MOVE, {"ids": ids})

    def _end_move(self, shard: Shard, ids: list[int]) -> int:
        return self._changed(shard, statements.END_MOVE, {"ids": ids})

    def _changed(self, shard: Shard, statement: LiteralString, values: Any) -> int:
        """How many rows."""
        text = _text(statement, shard)
        return self._run(lambda cursor: cursor.execute(text, values).rowcount, 0)

    # --- the node ---------------------------------------------------------------------------

    def shards(self, prefix: str) -> list[Shard]:
        values = {"prefix": prefix, "mark": statements.MARK}
        return [
            Shard(*row)
            for row in self._pool.run(
                lambda cursor: cursor.execute(statements.SHARDS, values).fetchall()
            )
        ]

    def _drop(self, shard: Shard) -> None:
        self._made.discard(shard)
        self._pool.run(lambda cursor: _drop(cursor, shard))

    def health(self) -> NodeHealth:
        def work(cursor: Cursor) -> NodeHealth:
            version, storage, connections = _one(cursor.execute(statements.HEALTH))
            members = cursor.execute(statements.MEMBERS).fetchall()
            slow = cursor.execute(statements.SLOW, {"name": APPLICATION}).fetchall()
            return NodeHealth(
                kind="postgresql",
                version=version,
                storage_bytes=storage,
                connections=connections,
                members=[f"{name}: {state}" for name, state in members],
                slow=[SlowOperation(round(seconds, 1), text) for seconds, text in slow],
            )

        return self._pool.run(work)

    def close(self) -> None:
        self._pool.close()

    def _rows(self, shard: Shard, statement: LiteralString, values: Any) -> list[Row]:
        return self._run(lambda cursor: _all(cursor, shard, statement, values), [])

    def _run(self, work: Callable[[Cursor], T], nothing: T) -> T:
        """A shard that is not there is an empty one."""
        try:
            return self._pool.run(work)
        except Missing:
            return nothing


@lru_cache(maxsize=10_000)
def _text(statement: LiteralString, shard: Shard) -> bytes:
    """With the names of a shard put in."""
    table = sql.Identifier(shard.database, shard.collection)
    name = sql.Literal(table.as_string(None))
    return sql.SQL(statement).format(t=table, name=name).as_bytes(None)


def _all(cursor: Cursor, shard: Shard, statement: LiteralString, values: Any) -> list[Row]:
    return cursor.execute(_text(statement, shard), values).fetchall()


def _one(cursor: Cursor) -> Row:
    row = cursor.fetchone()
    if row is None:
        raise psycopg.InternalError("no row")
    return row


def _states(cursor: Cursor, shard: Shard, ids: list[int]) -> dict[int, State]:
    if not ids:
        return {}
    rows = _all(cursor, shard, statements.STATES, {"ids": ids})
    return {row[0]: State(*row[1:]) for row in rows}


def _long(rows: list[Row]) -> list[Row]:
    """Of ids and stories."""
    return [row for row in rows if len(row[1]) >= story.LONG_STORY]


def _shorten(cursor: Cursor, shard: Shard, long: list[Row]) -> None:
    changed = [(id_, shorter) for id_, text in long if (shorter := story.shorter(text))]
    if changed:
        ids, texts = [one[0] for one in changed], [one[1] for one in changed]
        cursor.execute(_text(statements.SHORTEN, shard), {"ids": ids, "steps": texts})


def _request(row: Row) -> StoredRequest:
    """``_SHORT`` or ``_WHOLE`` of the statements."""
    steps: list[Step] = []
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


def _make(cursor: Cursor, shard: Shard) -> None:
    if _is_there(cursor, shard):
        return
    cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
    if _is_there(cursor, shard):
        return
    table = sql.Identifier(shard.database, shard.collection)
    schema = sql.Identifier(shard.database)
    cursor.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(schema))
    for statement in statements.TABLE:
        cursor.execute(sql.SQL(statement).format(t=table))
    comment = sql.SQL("COMMENT ON TABLE {} IS {}")
    cursor.execute(comment.format(table, sql.Literal(statements.MARK)))


def _is_there(cursor: Cursor, shard: Shard) -> bool:
    """Asked of the catalog: to_regclass() does not see what others made since we looked first."""
    values = [shard.database, shard.collection]
    return bool(_one(cursor.execute(statements.IS_THERE, values))[0])


def _drop(cursor: Cursor, shard: Shard) -> None:
    cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
    table = sql.Identifier(shard.database, shard.collection)
    cursor.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(table))
    left = "SELECT count(*) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"
    if not _one(cursor.execute(left + " WHERE n.nspname = %s", [shard.database]))[0]:
        schema = sql.Identifier(shard.database)
        cursor.execute(sql.SQL("DROP SCHEMA IF EXISTS {}").format(schema))
