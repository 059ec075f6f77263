"""Storage node on PostgreSQL; each method is one transaction of one or two statements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, LiteralString, TypeVar

from apps.requeststore.engine.flags import NEW, TAKEN, is_final
from apps.requeststore.stores import story
from apps.requeststore.stores.base import (
    EndCode,
    Finish,
    GiveBack,
    HistoryStepKind,
    NewRequest,
    NodeHealth,
    QueueEntry,
    Shard,
    ShardSize,
    SlowOperation,
    StoredRequest,
    Take,
    TakeCode,
)
from apps.requeststore.stores.checked import CheckedNode
from apps.requeststore.stores.guards import LeaseState, MissingShard, why_not_ended, why_not_taken
from apps.requeststore.stores.postgres import statements
from apps.requeststore.stores.postgres.pool import APPLICATION, CONNECTIONS, NodePool
from apps.requeststore.stores.postgres.table import PostgresShard, one_row, request_of
from apps.runtime.engine.postgres_pool import WAIT_SECONDS, Cursor, Row

T = TypeVar("T")


class PostgresNode(CheckedNode):
    """See ``stores.base.StorageNode``. Connects at the first call.

    Raises:
        BadSetting: the URL is invalid.
    """

    def __init__(
        self, url: str, *, connections: int = CONNECTIONS, wait_seconds: float = WAIT_SECONDS
    ) -> None:
        self._pool = NodePool(url, connections=connections, wait_seconds=wait_seconds)
        self._made: set[Shard] = set()

    # --- storing ----------------------------------------------------------------------------

    def _ensure(self, shard: Shard, delete_after_seconds: int) -> None:
        del delete_after_seconds  # unused: PostgreSQL has no TTL indexes, ``delete`` deletes
        if shard not in self._made:
            self._pool.run(lambda cursor: PostgresShard(cursor, shard).make())
            self._made.add(shard)

    def _insert(self, shard: Shard, requests: list[NewRequest], by: str, now: int) -> list[bool]:
        ordered = sorted(requests, key=lambda one: one.id)
        values = {
            "step": story.written(now, HistoryStepKind.STORED, by),
            "ids": [request.id for request in ordered],
            "bizzes": [request.biz for request in ordered],
            "times": [request.ts for request in ordered],
            "priorities": [request.priority for request in ordered],
            "datas": [request.data for request in ordered],
        }
        new = self._store(shard, statements.INSERT, values)
        return [request.id in new for request in requests]

    def _receive(self, shard: Shard, requests: list[StoredRequest], by: str, now: int) -> int:
        step = story.written(now, HistoryStepKind.MOVED, by)
        rows = [
            story.whole_row(request, step) for request in sorted(requests, key=lambda one: one.id)
        ]
        columns = [list(column) for column in zip(*rows, strict=True)]
        return len(self._store(shard, statements.RECEIVE, columns))

    def _store(self, shard: Shard, statement: LiteralString, values: Any) -> set[int]:
        """Insert rows, making a missing shard; return the new IDs."""

        def work(cursor: Cursor) -> set[int]:
            return {row[0] for row in PostgresShard(cursor, shard).rows(statement, values)}

        try:
            return self._pool.run(work)
        except MissingShard:
            self._made.discard(shard)
            self._ensure(shard, 0)
            return self._pool.run(work)

    # --- changing ---------------------------------------------------------------------------

    def _queued(self, shard: Shard, ids: list[int], by: str, now: int, again: bool) -> None:
        kind = HistoryStepKind.REQUEUED if again else HistoryStepKind.QUEUED
        values = {"ids": ids, "now": now, "step": story.written(now, kind, by)}

        def work(cursor: Cursor) -> None:
            table = PostgresShard(cursor, shard)
            table.shorten(table.rows(statements.QUEUED, values))

        self._run(work, None)

    def _take(
        self,
        shard: Shard,
        entries: list[QueueEntry],
        owner: str,
        now: int,
        deadline: int,
        cutoff: int,
    ) -> list[Take]:
        values = {
            "ids": [entry.id for entry in entries],
            "times": [entry.ts for entry in entries],
            "bizzes": [entry.biz for entry in entries],
            "owner": owner,
            "deadline": deadline,
            "now": now,
            "cutoff": cutoff,
            "step": story.written(now, HistoryStepKind.TAKEN, owner),
        }

        def work(cursor: Cursor) -> tuple[dict[int, StoredRequest], dict[int, LeaseState]]:
            table = PostgresShard(cursor, shard)
            rows = table.rows(statements.TAKE, values)
            table.shorten([(row[0], row[11]) for row in rows])
            taken = {row[0]: request_of(row) for row in rows}
            return taken, table.states([entry.id for entry in entries if entry.id not in taken])

        nothing: tuple[dict[int, StoredRequest], dict[int, LeaseState]] = {}, {}
        taken, states = self._run(work, nothing)
        return [
            Take(TakeCode.TAKEN, taken[entry.id])
            if entry.id in taken
            else Take(why_not_taken(entry, states.get(entry.id), cutoff=cutoff))
            for entry in entries
        ]

    def _finish(self, shard: Shard, ends: list[Finish], owner: str, now: int) -> list[EndCode]:
        values = {
            "flags": [end.flag for end in ends],
            "results": [end.result for end in ends],
            "now": now,
        }
        return self._end(
            shard, statements.FINISH, ends, owner, now, HistoryStepKind.FINISHED, values
        )

    def _give_back(self, shard: Shard, ends: list[GiveBack], owner: str, now: int) -> list[EndCode]:
        return self._end(
            shard, statements.GIVE_BACK, ends, owner, now, HistoryStepKind.RETURNED, {}
        )

    def _end(
        self,
        shard: Shard,
        statement: LiteralString,
        ends: Sequence[Finish | GiveBack],
        owner: str,
        now: int,
        kind: HistoryStepKind,
        more: dict[str, Any],
    ) -> list[EndCode]:
        values = {
            "ids": [end.id for end in ends],
            "tries": [end.tries for end in ends],
            "steps": [story.written(now, kind, owner, end.text) for end in ends],
            "owner": owner,
            **more,
        }

        def work(cursor: Cursor) -> tuple[set[int], dict[int, LeaseState]]:
            table = PostgresShard(cursor, shard)
            done = {row[0] for row in table.rows(statement, values)}
            return done, table.states([end.id for end in ends if end.id not in done])

        nothing: tuple[set[int], dict[int, LeaseState]] = set(), {}
        done, states = self._run(work, nothing)
        return [
            EndCode.DONE if end.id in done else why_not_ended(end, states.get(end.id), owner=owner)
            for end in ends
        ]

    # --- reading ----------------------------------------------------------------------------

    def _find(self, shard: Shard, ids: list[int]) -> list[StoredRequest]:
        return [request_of(row) for row in self._rows(shard, statements.FIND, {"ids": ids})]

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
        return [request_of(row) for row in self._rows(shard, statement, values)]

    def _orphans(self, shard: Shard, before: int, cutoff: int, limit: int) -> list[QueueEntry]:
        values = {"before": before, "cutoff": cutoff, "limit": limit}
        return [QueueEntry(*row) for row in self._rows(shard, statements.ORPHANS, values)]

    def _forgotten(self, shard: Shard, before: int, cutoff: int, limit: int) -> list[QueueEntry]:
        values = {"before": before, "cutoff": cutoff, "limit": limit}
        return [QueueEntry(*row) for row in self._rows(shard, statements.FORGOTTEN, values)]

    def _count(self, shard: Shard, since: int, until: int) -> dict[int, int]:
        return dict(self._rows(shard, statements.COUNT, {"since": since, "until": until}))

    def _oldest(self, shard: Shard, flag: int) -> int | None:
        rows = self._rows(shard, statements.OLDEST, {"flag": flag})
        return rows[0][0] if rows else None

    def _size(self, shard: Shard) -> ShardSize:
        rows = self._rows(shard, statements.SIZE, None)
        return ShardSize(*rows[0]) if rows and rows[0][0] else ShardSize(0, 0)

    # --- sweeping and moving ----------------------------------------------------------------

    def _overdue(
        self, shard: Shard, now: int, cutoff: int, limit: int, by: str
    ) -> list[StoredRequest]:
        values = {
            "now": now,
            "cutoff": cutoff,
            "limit": limit,
            "step": story.written(now, HistoryStepKind.OVERDUE, by),
        }
        return [request_of(row) for row in self._rows(shard, statements.OVERDUE, values)]

    def _expire(self, shard: Shard, cutoff: int, limit: int, by: str, now: int) -> int:
        step = story.written(now, HistoryStepKind.EXPIRED, by)

        def work(cursor: Cursor) -> int:
            table, done = PostgresShard(cursor, shard), 0
            for flag in (NEW, TAKEN):
                left = {"flag": flag, "cutoff": cutoff, "limit": limit - done}
                values = {**left, "now": now, "step": step}
                done += table.execute(statements.EXPIRE, values).rowcount
            return done

        return self._run(work, 0)

    def _delete(self, shard: Shard, before: int, limit: int) -> int:
        def work(cursor: Cursor) -> int:
            table, deleted = PostgresShard(cursor, shard), 0
            flags = [row[0] for row in table.rows(statements.FLAGS, None)]
            for flag in filter(is_final, flags):
                values = {"flag": flag, "before": before, "limit": limit - deleted}
                deleted += table.execute(statements.DELETE, values).rowcount
            return deleted

        return self._run(work, 0)

    def _reopen(
        self, shard: Shard, ids: list[int], flags: list[int], by: str, now: int, cutoff: int
    ) -> list[int]:
        if not flags:
            return []
        step = story.written(now, HistoryStepKind.REOPENED, by)
        values = {"ids": ids, "flags": flags, "cutoff": cutoff, "step": step}

        def work(cursor: Cursor) -> list[int]:
            table = PostgresShard(cursor, shard)
            rows = table.rows(statements.REOPEN, values)
            table.shorten(rows)
            return [row[0] for row in rows]

        return self._run(work, [])

    def _start_move(self, shard: Shard, ids: list[int]) -> list[StoredRequest]:
        return [request_of(row) for row in self._rows(shard, statements.START_MOVE, {"ids": ids})]

    def _undo_move(self, shard: Shard, ids: list[int]) -> int:
        return self._changed(shard, statements.UNDO_MOVE, {"ids": ids})

    def _end_move(self, shard: Shard, ids: list[int]) -> int:
        return self._changed(shard, statements.END_MOVE, {"ids": ids})

    def _changed(self, shard: Shard, statement: LiteralString, values: Any) -> int:
        """Run a statement; return the number of rows."""
        return self._run(
            lambda cursor: PostgresShard(cursor, shard).execute(statement, values).rowcount, 0
        )

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
        self._pool.run(lambda cursor: PostgresShard(cursor, shard).drop())

    def health(self) -> NodeHealth:
        def work(cursor: Cursor) -> NodeHealth:
            version, storage, connections = one_row(cursor.execute(statements.HEALTH))
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
        return self._run(lambda cursor: PostgresShard(cursor, shard).rows(statement, values), [])

    def _run(self, work: Callable[[Cursor], T], nothing: T) -> T:
        """Run ``work``; a missing shard counts as empty."""
        try:
            return self._pool.run(work)
        except MissingShard:
            return nothing
