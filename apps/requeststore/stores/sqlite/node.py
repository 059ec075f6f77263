"""The port on SQLite: what comes in is checked, portions are made, a missing shard is empty."""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from apps.requeststore.engine.limits import MAX_ID, MAX_TS
from apps.requeststore.stores import checks
from apps.requeststore.stores.base import (
    Counts,
    EndCode,
    Entry,
    Finish,
    GiveBack,
    NewRequest,
    NodeHealth,
    Shard,
    Size,
    StoredRequest,
    Take,
    TakeCode,
)
from apps.requeststore.stores.sqlite import changing, statements, storing
from apps.requeststore.stores.sqlite.files import BUSY_SECONDS, Files, Missing
from apps.requeststore.stores.sqlite.table import Row, Table, request_of

T = TypeVar("T")
P = ParamSpec("P")

_PORTION: Final = changing.PORTION
_PORTION_BYTES: Final = 8 * 1024 * 1024
# Of a row without its data, with what the indexes take.
_ROW_BYTES: Final = 350


class SqliteNode:
    """See ``stores.base.StorageNode``. ``sync``: a commit waits until the disk has it.

    Without it a killed process loses nothing, but a power failure may lose the last moments.

    Raises:
        StoreUnavailable: the folder cannot be made or written.
    """

    def __init__(
        self, folder: Path, *, sync: bool = False, busy_seconds: float = BUSY_SECONDS
    ) -> None:
        self._files = Files(folder, sync=sync, busy_seconds=busy_seconds)
        self._made: set[Shard] = set()

    # --- storing ----------------------------------------------------------------------------

    def ensure(self, shard: Shard, *, delete_after_seconds: int) -> None:
        checks.check_shard(shard)
        if shard not in self._made:
            self._files.writing(
                shard.database, lambda connection: Table(connection, shard).make(), make=True
            )
            self._made.add(shard)

    def insert(
        self, shard: Shard, requests: Sequence[NewRequest], *, by: str, now: int
    ) -> list[bool]:
        checks.check_shard(shard)
        checks.check_new(requests)
        checks.check_by(by)
        checks.check_time("now", now)
        answers = [False] * len(requests)
        for portion in checks.portions(
            requests,
            lambda one: one.id,
            most=_PORTION,
            size=lambda one: len(one.data),
            most_bytes=_PORTION_BYTES,
        ):
            new = self._stored(shard, storing.insert, portion, by=by, now=now)
            for (place, _one), is_new in zip(portion, new, strict=True):
                answers[place] = is_new
        return answers

    def receive(self, shard: Shard, requests: Sequence[StoredRequest], *, by: str, now: int) -> int:
        checks.check_shard(shard)
        checks.check_received(requests)
        checks.check_by(by)
        checks.check_time("now", now)
        received = 0
        for portion in checks.portions(
            requests,
            lambda one: one.id,
            most=_PORTION,
            size=lambda one: len(one.data),
            most_bytes=_PORTION_BYTES,
        ):
            rows = [storing.whole(place, one, by=by, now=now) for place, one in portion]
            received += sum(self._stored(shard, storing.receive, rows))
        return received

    def _stored(
        self,
        shard: Shard,
        work: Callable[Concatenate[Files, Shard, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Into a shard that is made when somebody has dropped it, or never made it."""
        try:
            self.ensure(shard, delete_after_seconds=0)
            return work(self._files, shard, *args, **kwargs)
        except Missing:
            self._made.discard(shard)
            self.ensure(shard, delete_after_seconds=0)
            return work(self._files, shard, *args, **kwargs)

    # --- changing ---------------------------------------------------------------------------

    def queued(
        self, shard: Shard, ids: Sequence[int], *, by: str, now: int, again: bool = False
    ) -> None:
        checks.check_shard(shard)
        checks.check_ids(ids)
        checks.check_by(by)
        checks.check_time("now", now)
        distinct = sorted(set(ids))
        for start in range(0, len(distinct), _PORTION):
            portion = distinct[start : start + _PORTION]
            self._named(None, changing.queued, shard, portion, by=by, now=now, again=again)

    def take(
        self,
        shard: Shard,
        entries: Sequence[Entry],
        *,
        owner: str,
        now: int,
        deadline: int,
        cutoff: int,
    ) -> list[Take]:
        checks.check_shard(shard)
        checks.check_entries(entries)
        checks.check_owner(owner)
        checks.check_times(now=now, deadline=deadline)
        checks.check_cutoff(cutoff)
        answers = [Take(TakeCode.UNKNOWN)] * len(entries)
        for portion in checks.portions(entries, lambda one: one.id, most=_PORTION):
            takes = self._named(
                [Take(TakeCode.UNKNOWN)] * len(portion),
                changing.take,
                shard,
                portion,
                owner=owner,
                now=now,
                deadline=deadline,
                cutoff=cutoff,
            )
            for (place, _one), answer in zip(portion, takes, strict=True):
                answers[place] = answer
        return answers

    def finish(
        self, shard: Shard, ends: Sequence[Finish], *, owner: str, now: int
    ) -> list[EndCode]:
        return self._end(shard, ends, owner, now)

    def give_back(
        self, shard: Shard, ends: Sequence[GiveBack], *, owner: str, now: int
    ) -> list[EndCode]:
        return self._end(shard, ends, owner, now)

    def _end(self, shard: Shard, ends: Sequence[Any], owner: str, now: int) -> list[EndCode]:
        checks.check_shard(shard)
        checks.check_ends(ends)
        checks.check_owner(owner)
        checks.check_time("now", now)
        answers = [EndCode.UNKNOWN] * len(ends)
        for portion in checks.portions(ends, lambda one: one.id, most=_PORTION):
            codes = self._named(
                [EndCode.UNKNOWN] * len(portion), changing.end, shard, portion, owner=owner, now=now
            )
            for (place, _one), code in zip(portion, codes, strict=True):
                answers[place] = code
        return answers

    # --- reading ----------------------------------------------------------------------------

    def find(self, shard: Shard, ids: Sequence[int]) -> list[StoredRequest | None]:
        checks.check_shard(shard)
        checks.check_ids(ids)

        def work(table: Table) -> list[StoredRequest | None]:
            rows = (table.execute(statements.FIND, (one,)).fetchone() for one in ids)
            return [row and request_of(row) for row in rows]

        return self._read(shard, work, [None] * len(ids))

    def page(
        self,
        shard: Shard,
        *,
        biz: str,
        flag: int | None = None,
        since: int = 0,
        until: int = MAX_TS,
        after: tuple[int, int] | None = None,
        limit: int = 100,
    ) -> list[StoredRequest]:
        checks.check_shard(shard)
        checks.check_span(since, until)
        checks.check_limit(limit)
        after_ts, after_id = after or (MAX_ID, MAX_ID)
        values = {
            "biz": biz,
            "since": since,
            "until": until,
            "after_ts": after_ts,
            "after_id": after_id,
            "limit": limit,
        }

        def work(table: Table) -> list[StoredRequest]:
            flags = list(table.flags()) if flag is None else [flag]
            lists = [table.execute(statements.PAGE, {**values, "flag": one}) for one in flags]
            newest = heapq.merge(*lists, key=lambda row: (row[3], row[0]), reverse=True)
            rows: list[Row] = [row for row, _ in zip(newest, range(limit), strict=False)]
            return [request_of(row) for row in rows]

        return self._read(shard, work, [])

    def orphans(self, shard: Shard, *, before: int, cutoff: int, limit: int) -> list[Entry]:
        return self._entries(statements.ORPHANS, shard, before, cutoff, limit)

    def forgotten(self, shard: Shard, *, before: int, cutoff: int, limit: int) -> list[Entry]:
        return self._entries(statements.FORGOTTEN, shard, before, cutoff, limit)

    def _entries(
        self, statement: str, shard: Shard, before: int, cutoff: int, limit: int
    ) -> list[Entry]:
        checks.check_shard(shard)
        checks.check_span(cutoff, before)
        checks.check_limit(limit)
        values = {"before": before, "cutoff": cutoff, "limit": limit}
        return self._read(
            shard, lambda table: [Entry(*row) for row in table.execute(statement, values)], []
        )

    def count(self, shard: Shard, *, since: int = 0, until: int = MAX_TS) -> Counts:
        checks.check_shard(shard)
        checks.check_span(since, until)

        def work(table: Table) -> Counts:
            counted: dict[int, int] = {}
            for flag in table.flags():
                values = {"flag": flag, "since": since, "until": until}
                (number,) = table.execute(statements.COUNT, values).fetchone()
                if number:
                    counted[flag] = number
            return Counts(counted)

        return self._read(shard, work, Counts())

    def oldest(self, shard: Shard, *, flag: int) -> int | None:
        checks.check_shard(shard)

        def work(table: Table) -> int | None:
            found: int | None = table.execute(statements.OLDEST, (flag,)).fetchone()[0]
            return found

        return self._read(shard, work, None)

    # --- sweeping and moving ----------------------------------------------------------------

    def overdue(
        self, shard: Shard, *, now: int, cutoff: int, limit: int, by: str
    ) -> list[StoredRequest]:
        self._check_sweep(shard, now, cutoff, limit, by)
        return self._named([], storing.overdue, shard, now=now, cutoff=cutoff, limit=limit, by=by)

    def expire(self, shard: Shard, *, cutoff: int, limit: int, by: str, now: int) -> int:
        self._check_sweep(shard, now, cutoff, limit, by)
        return self._named(0, storing.expire, shard, cutoff=cutoff, limit=limit, by=by, now=now)

    def _check_sweep(self, shard: Shard, now: int, cutoff: int, limit: int, by: str) -> None:
        checks.check_shard(shard)
        checks.check_time("now", now)
        checks.check_cutoff(cutoff)
        checks.check_limit(limit)
        checks.check_by(by)

    def delete(self, shard: Shard, *, before: int, limit: int) -> int:
        checks.check_shard(shard)
        checks.check_span(before, before)
        checks.check_limit(limit)
        return self._named(0, storing.delete, shard, before=before, limit=limit)

    def start_move(
        self, shard: Shard, ids: Sequence[int], *, now: int
    ) -> list[StoredRequest | None]:
        checks.check_shard(shard)
        checks.check_ids(ids)
        checks.check_time("now", now)
        started: dict[int, StoredRequest] = {}
        for portion in _distinct(ids):
            found = self._named([], changing.start_move, shard, portion)
            started |= {one.id: one for one in found}
        return [started.get(number) for number in ids]

    def undo_move(self, shard: Shard, ids: Sequence[int]) -> int:
        checks.check_shard(shard)
        checks.check_ids(ids)
        return sum(self._named(0, changing.undo_move, shard, portion) for portion in _distinct(ids))

    def end_move(self, shard: Shard, ids: Sequence[int]) -> int:
        checks.check_shard(shard)
        checks.check_ids(ids)
        distinct = sorted(set(ids))
        return self._named(0, changing.end_move, shard, distinct)

    def reopen(
        self,
        shard: Shard,
        ids: Sequence[int],
        *,
        flags: Sequence[int],
        by: str,
        now: int,
        cutoff: int,
    ) -> list[bool]:
        self._check_sweep(shard, now, cutoff, 1, by)
        checks.check_ids(ids)
        opened: set[int] = set()
        for portion in _distinct(ids):
            opened |= set(
                self._named(
                    [],
                    changing.reopen,
                    shard,
                    portion,
                    flags=flags,
                    by=by,
                    now=now,
                    cutoff=cutoff,
                )
            )
        answers = []
        for number in ids:
            answers.append(number in opened)
            # An id that is named twice was opened once.
            opened.discard(number)
        return answers

    # --- the node ---------------------------------------------------------------------------

    def size(self, shard: Shard) -> Size:
        checks.check_shard(shard)

        def work(table: Table) -> Size:
            (count,) = table.execute(statements.SIZE).fetchone()
            sample = [row[0] for row in table.execute(statements.SAMPLE)]
            mean = sum(sample) / len(sample) if sample else 0
            return Size(count, round(count * (mean + _ROW_BYTES)))

        return self._read(shard, work, Size(0, 0))

    def shards(self, prefix: str) -> list[Shard]:
        def work(connection: sqlite3.Connection) -> list[str]:
            return [row[0] for row in connection.execute(statements.SHARDS)]

        return [
            Shard(database, collection)
            for database in self._files.databases()
            if database.startswith(prefix)
            for collection in self._files.reading(database, work)
        ]

    def drop(self, shard: Shard) -> None:
        checks.check_shard(shard)

        def work(connection: sqlite3.Connection) -> None:
            for statement in statements.DROP:
                Table(connection, shard).execute(statement)

        self._made.discard(shard)
        with suppress(Missing):
            self._files.writing(shard.database, work)

    def health(self) -> NodeHealth:
        storage = 0
        for database in self._files.databases():
            path = self._files.path(database)
            for name in (path.name, f"{path.name}-wal"):
                file = path.with_name(name)
                storage += file.stat().st_size if file.exists() else 0
        return NodeHealth(kind="sqlite", version=sqlite3.sqlite_version, storage_bytes=storage)

    def close(self) -> None:
        self._files.close()

    def _read(self, shard: Shard, work: Callable[[Table], T], nothing: T) -> T:
        def look(connection: sqlite3.Connection) -> T:
            return work(Table(connection, shard))

        try:
            return self._files.reading(shard.database, look)
        except Missing:
            return nothing

    def _named(
        self,
        nothing: T,
        work: Callable[Concatenate[Files, Shard, P], T],
        shard: Shard,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """``work``; a shard that is not there is an empty one."""
        try:
            return work(self._files, shard, *args, **kwargs)
        except Missing:
            return nothing


def _distinct(ids: Sequence[int]) -> list[list[int]]:
    """Portions of them, each id once."""
    distinct = sorted(set(ids))
    return [distinct[start : start + _PORTION] for start in range(0, len(distinct), _PORTION)]
