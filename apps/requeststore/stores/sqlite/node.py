"""Storage node on SQLite; a missing shard counts as empty."""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from apps.requeststore.stores.base import (
    EndCode,
    Finish,
    GiveBack,
    NewRequest,
    NodeHealth,
    QueueEntry,
    Shard,
    ShardSize,
    StoredRequest,
    Take,
    TakeCode,
)
from apps.requeststore.stores.checked import CheckedNode
from apps.requeststore.stores.guards import MissingShard
from apps.requeststore.stores.sqlite import inserts, statements, updates
from apps.requeststore.stores.sqlite.files import Files
from apps.requeststore.stores.sqlite.table import Row, SqliteShard, request_of
from apps.runtime.engine.sqlite_files import BUSY_SECONDS

T = TypeVar("T")
P = ParamSpec("P")

# Estimated bytes of a row without its data, indexes included.
_ROW_BYTES: Final = 350


class SqliteNode(CheckedNode):
    """See ``stores.base.StorageNode``. ``sync``: a commit waits for the disk.

    Without ``sync`` a killed process loses nothing, but a power failure may lose the last seconds.

    Raises:
        RequestStoreUnavailable: the folder cannot be made or written.
    """

    def __init__(
        self, folder: Path, *, sync: bool = False, busy_seconds: float = BUSY_SECONDS
    ) -> None:
        self._files = Files(folder, sync=sync, busy_seconds=busy_seconds)
        self._made: set[Shard] = set()

    # --- storing ----------------------------------------------------------------------------

    def _ensure(self, shard: Shard, delete_after_seconds: int) -> None:
        del delete_after_seconds  # unused: SQLite has no TTL indexes, ``delete`` deletes
        if shard not in self._made:
            self._files.writing(
                shard.database, lambda connection: SqliteShard(connection, shard).make(), make=True
            )
            self._made.add(shard)

    def _insert(self, shard: Shard, requests: list[NewRequest], by: str, now: int) -> list[bool]:
        return self._stored(shard, inserts.insert, requests, by, now)

    def _receive(self, shard: Shard, requests: list[StoredRequest], by: str, now: int) -> int:
        return sum(self._stored(shard, inserts.receive, requests, by, now))

    def _stored(
        self,
        shard: Shard,
        work: Callable[Concatenate[Files, Shard, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run ``work``, making a missing shard."""
        try:
            self._ensure(shard, 0)
            return work(self._files, shard, *args, **kwargs)
        except MissingShard:
            self._made.discard(shard)
            self._ensure(shard, 0)
            return work(self._files, shard, *args, **kwargs)

    # --- changing ---------------------------------------------------------------------------

    def _queued(self, shard: Shard, ids: list[int], by: str, now: int, again: bool) -> None:
        self._found(None, updates.queued, shard, ids, by, now, again)

    def _take(
        self,
        shard: Shard,
        entries: list[QueueEntry],
        owner: str,
        now: int,
        deadline: int,
        cutoff: int,
    ) -> list[Take]:
        nothing = [Take(TakeCode.UNKNOWN)] * len(entries)
        return self._found(nothing, updates.take, shard, entries, owner, now, deadline, cutoff)

    def _finish(self, shard: Shard, ends: list[Finish], owner: str, now: int) -> list[EndCode]:
        nothing = [EndCode.UNKNOWN] * len(ends)
        return self._found(nothing, updates.finish, shard, ends, owner, now)

    def _give_back(self, shard: Shard, ends: list[GiveBack], owner: str, now: int) -> list[EndCode]:
        nothing = [EndCode.UNKNOWN] * len(ends)
        return self._found(nothing, updates.give_back, shard, ends, owner, now)

    # --- reading ----------------------------------------------------------------------------

    def _find(self, shard: Shard, ids: list[int]) -> list[StoredRequest]:
        def work(table: SqliteShard) -> list[StoredRequest]:
            rows = (table.execute(statements.FIND, (number,)).fetchone() for number in ids)
            return [request_of(row) for row in rows if row]

        return self._read(shard, work, [])

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
        values: dict[str, Any] = {
            "biz": biz,
            "since": since,
            "until": until,
            "after_ts": after[0],
            "after_id": after[1],
            "limit": limit,
        }

        def work(table: SqliteShard) -> list[StoredRequest]:
            flags = list(table.flags()) if flag is None else [flag]
            lists = [table.execute(statements.PAGE, {**values, "flag": flag}) for flag in flags]
            newest = heapq.merge(*lists, key=lambda row: (row[3], row[0]), reverse=True)
            rows: list[Row] = [row for row, _ in zip(newest, range(limit), strict=False)]
            return [request_of(row) for row in rows]

        return self._read(shard, work, [])

    def _orphans(self, shard: Shard, before: int, cutoff: int, limit: int) -> list[QueueEntry]:
        return self._entries(statements.ORPHANS, shard, before, cutoff, limit)

    def _forgotten(self, shard: Shard, before: int, cutoff: int, limit: int) -> list[QueueEntry]:
        return self._entries(statements.FORGOTTEN, shard, before, cutoff, limit)

    def _entries(
        self, statement: str, shard: Shard, before: int, cutoff: int, limit: int
    ) -> list[QueueEntry]:
        values = {"before": before, "cutoff": cutoff, "limit": limit}
        return self._read(
            shard, lambda table: [QueueEntry(*row) for row in table.execute(statement, values)], []
        )

    def _count(self, shard: Shard, since: int, until: int) -> dict[int, int]:
        def work(table: SqliteShard) -> dict[int, int]:
            counted: dict[int, int] = {}
            for flag in table.flags():
                values = {"flag": flag, "since": since, "until": until}
                (number,) = table.execute(statements.COUNT, values).fetchone()
                if number:
                    counted[flag] = number
            return counted

        return self._read(shard, work, {})

    def _oldest(self, shard: Shard, flag: int) -> int | None:
        def work(table: SqliteShard) -> int | None:
            oldest: int | None = table.execute(statements.OLDEST, (flag,)).fetchone()[0]
            return oldest

        return self._read(shard, work, None)

    def _size(self, shard: Shard) -> ShardSize:
        def work(table: SqliteShard) -> ShardSize:
            (count,) = table.execute(statements.SIZE).fetchone()
            sample = [row[0] for row in table.execute(statements.SAMPLE)]
            mean = sum(sample) / len(sample) if sample else 0
            return ShardSize(count, round(count * (mean + _ROW_BYTES)))

        return self._read(shard, work, ShardSize(0, 0))

    # --- sweeping and moving ----------------------------------------------------------------

    def _overdue(
        self, shard: Shard, now: int, cutoff: int, limit: int, by: str
    ) -> list[StoredRequest]:
        return self._found([], inserts.overdue, shard, now, cutoff, limit, by)

    def _expire(self, shard: Shard, cutoff: int, limit: int, by: str, now: int) -> int:
        return self._found(0, inserts.expire, shard, cutoff, limit, by, now)

    def _delete(self, shard: Shard, before: int, limit: int) -> int:
        return self._found(0, inserts.delete, shard, before, limit)

    def _reopen(
        self, shard: Shard, ids: list[int], flags: list[int], by: str, now: int, cutoff: int
    ) -> list[int]:
        return self._found([], updates.reopen, shard, ids, flags, by, now, cutoff)

    def _start_move(self, shard: Shard, ids: list[int]) -> list[StoredRequest]:
        return self._found([], inserts.start_move, shard, ids)

    def _undo_move(self, shard: Shard, ids: list[int]) -> int:
        return self._found(0, inserts.undo_move, shard, ids)

    def _end_move(self, shard: Shard, ids: list[int]) -> int:
        return self._found(0, inserts.end_move, shard, ids)

    def _drop(self, shard: Shard) -> None:
        def work(connection: sqlite3.Connection) -> None:
            for statement in statements.DROP:
                SqliteShard(connection, shard).execute(statement)

        self._made.discard(shard)
        with suppress(MissingShard):
            self._files.writing(shard.database, work)

    # --- the node ---------------------------------------------------------------------------

    def shards(self, prefix: str) -> list[Shard]:
        def work(connection: sqlite3.Connection) -> list[str]:
            return [row[0] for row in connection.execute(statements.SHARDS)]

        return [
            Shard(database, collection)
            for database in self._files.databases()
            if database.startswith(prefix)
            for collection in self._files.reading(database, work)
        ]

    def health(self) -> NodeHealth:
        return NodeHealth(
            kind="sqlite", version=sqlite3.sqlite_version, storage_bytes=self._files.size()
        )

    def close(self) -> None:
        self._files.close()

    def _read(self, shard: Shard, work: Callable[[SqliteShard], T], nothing: T) -> T:
        def look(connection: sqlite3.Connection) -> T:
            return work(SqliteShard(connection, shard))

        try:
            return self._files.reading(shard.database, look)
        except MissingShard:
            return nothing

    def _found(
        self,
        nothing: T,
        work: Callable[Concatenate[Files, Shard, P], T],
        shard: Shard,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run ``work``; a missing shard counts as empty."""
        try:
            return work(self._files, shard, *args, **kwargs)
        except MissingShard:
            return nothing
