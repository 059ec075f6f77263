"""``SeedStore`` on RocksDB: each call is one atomic write."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from apps.seeds.engine.filters import FilterSettings
from apps.seeds.engine.keys import key_hash
from apps.seeds.engine.seeds import ResolvedSeed, State
from apps.seeds.stores.base import (
    AddResult,
    Finish,
    Finished,
    Known,
    Lease,
    MovedSlice,
    Regroup,
    ReopenedSlice,
    SeedPage,
    Segment,
    SegmentCounts,
    check_batch,
    check_limit,
    check_owner,
    check_seconds,
    check_segment,
)
from apps.seeds.stores.bodies import unpack_body
from apps.seeds.stores.rocks import inserts, leases, management, moves
from apps.seeds.stores.rocks.layout import Grant, beyond, due_of, due_until, place, read_status
from apps.seeds.stores.rocks.transaction import RocksFolder, all_states

MAX_FILTERS: Final = 64


class RocksStore:
    """Seeds in a folder. One process may have it open.

    ``sync``: every change is fsynced before it is answered, so that it survives a power failure;
    otherwise it survives only a crash of the process. ``max_filters``: Bloom filters in memory.

    Raises:
        StoreInUse: the folder is open in another process, or in another store of this one.
        SeedStoreUnavailable: the folder cannot be read or written.
    """

    def __init__(self, path: Path, *, sync: bool = True, max_filters: int = MAX_FILTERS) -> None:
        self._folder = RocksFolder(path, sync=sync, max_filters=max_filters)

    def set_filter(self, frontier: int, settings: FilterSettings) -> None:
        with self._folder.reading():
            self._folder.filters.settings[frontier] = settings.checked()

    def add(self, frontier: int, seeds: Sequence[ResolvedSeed], *, now: int) -> list[AddResult]:
        check_batch(seeds)
        with self._folder.change("add") as change:
            self._folder.guard.time(now)
            return inserts.add(self._folder, change, frontier, seeds, now)

    def lease(
        self,
        frontier: int,
        *,
        owner: str,
        limit: int,
        seconds: float,
        now: int,
        call: str = "",
        again: bool = False,
        check: Callable[[], None] = lambda: None,
    ) -> Lease:
        self._folder.guard.lease(owner, limit, seconds)
        with self._folder.change("lease") as change:
            self._folder.guard.time(now)
            check()
            earlier = leases.recall(self._folder, frontier, owner, call) if again else None
            if earlier is not None:
                return earlier
            deadline = now + round(seconds * 1000)
            return leases.lease(self._folder, change, frontier, owner, limit, deadline, now, call)

    def recall(self, frontier: int, *, owner: str, call: str) -> Lease | None:
        with self._folder.reading():
            return leases.recall(self._folder, frontier, owner, call)

    def extend(
        self, frontier: int, generation: int, *, owner: str, seconds: float, now: int
    ) -> int:
        check_seconds(seconds)
        with self._folder.change("extend") as change:
            self._folder.guard.time(now)
            grant = self._folder.held(frontier, generation, owner)
            deadline = max(grant.deadline, now + round(seconds * 1000))
            change.grant(generation, msgspec.structs.replace(grant, deadline=deadline))
            return deadline

    def extend_all(self, *, seconds: float, now: int) -> None:
        check_seconds(seconds)
        with self._folder.change("extend") as change:
            self._folder.guard.time(now)
            deadline = now + round(seconds * 1000)
            for generation, grant in self._folder.grants.items():
                if grant.deadline < deadline:
                    longer = msgspec.structs.replace(grant, deadline=deadline)
                    change.grant(generation, longer)

    def finish(
        self, frontier: int, finishes: Sequence[Finish], *, owner: str, now: int
    ) -> list[Finished]:
        check_batch(finishes)
        check_owner(owner)
        with self._folder.change("finish") as change:
            self._folder.guard.time(now)
            return leases.finish(self._folder, change, frontier, finishes, owner, now)

    def give_back(self, frontier: int, generation: int, *, owner: str, now: int) -> int:
        with self._folder.change("give_back") as change:
            self._folder.guard.time(now)
            return leases.give_back(self._folder, change, frontier, generation, owner, now)

    def expire(self, *, now: int) -> int:
        expired = 0
        while True:
            with self._folder.change("expire") as change:
                self._folder.guard.time(now)
                count = leases.expire(self._folder, change, now)
            expired += count
            if not count:
                return expired

    def next_due(self, frontier: int, *, now: int) -> int | None:
        folder = self._folder
        with folder.reading():
            moments = []
            for segment, record in folder.records.get(frontier, {}).items():
                where = place(frontier, segment)
                if record.books.pending:
                    later = folder.scan(due_until(where, now), beyond(b"p" + where))
                    moments += [due_of(key) for key, _ in [next(later, (b"", b""))] if key]
            return min(moments, default=None)

    def pending(self, frontier: int) -> int:
        folder = self._folder
        with folder.reading():
            return sum(record.books.pending for record in folder.records.get(frontier, {}).values())

    def segments(self, frontier: int) -> list[Segment]:
        folder = self._folder
        with folder.reading():
            return [
                Segment(
                    segment,
                    record.copy().books,
                    record.size,
                    folder.filters.state(frontier, segment),
                )
                for segment, record in sorted(folder.records.get(frontier, {}).items())
            ]

    def lookup(self, frontier: int, segment: int, key: str) -> Known | None:
        folder = self._folder
        with folder.reading():
            if segment not in folder.records.get(frontier, {}):
                return None
            location = place(frontier, segment) + key_hash(key)
            raw, body = folder.get([b"s" + location, b"b" + location])
            if raw is None or body is None:
                return None
            return _known(segment, raw, body, folder.grants)

    def reopen(self, frontier: int, segment: int, key: str, *, now: int) -> None:
        with self._folder.change("reopen") as change:
            self._folder.guard.time(now)
            management.reopen(self._folder, change, frontier, segment, key, now)

    def forget(self, frontier: int, segment: int, key: str, *, now: int) -> None:
        with self._folder.change("forget") as change:
            self._folder.guard.time(now)
            management.forget(self._folder, change, frontier, segment, key)

    def reopen_failed_slice(
        self, frontier: int, source: int, target: int, *, after: bytes, limit: int, now: int
    ) -> ReopenedSlice:
        folder = self._folder
        check_segment(target)
        check_limit(limit)
        with folder.change("reopen_failed") as change:
            folder.guard.time(now)
            folder.known(frontier, source)
            seeds, end = management.failed(folder, frontier, source, after, limit)
            fresh = 0
            if seeds:
                fresh = management.reopen_slice(
                    folder, change, frontier, source, target, seeds, now
                )
            return ReopenedSlice(fresh, len(seeds) - fresh, end)

    def restore(self, frontier: int, seeds: Sequence[Known], *, now: int) -> list[AddResult]:
        check_batch(seeds)
        with self._folder.change("restore") as change:
            self._folder.guard.time(now)
            return moves.restore(self._folder, change, frontier, seeds)

    def read(self, frontier: int, segment: int, *, after: bytes = b"", limit: int) -> SeedPage:
        check_limit(limit)
        folder = self._folder
        with folder.reading():
            if segment not in folder.records.get(frontier, {}):
                return SeedPage([], None)
            entries, end = moves.page(folder, frontier, segment, after, limit)
            seeds = [_known(segment, raw, body, folder.grants) for raw, body in entries]
            return SeedPage(seeds, end)

    def move(
        self,
        frontier: int,
        segment: int,
        target: int,
        regroup: Regroup,
        *,
        after: bytes,
        limit: int,
        now: int,
    ) -> MovedSlice:
        check_limit(limit)
        folder = self._folder
        with folder.change("move") as change:
            folder.guard.time(now)
            done = moves.move(folder, change, frontier, segment, target, regroup, after, limit)
            if done.after is None:
                folder.filters.drop(frontier, segment)
            return done

    def drop_segment(
        self, frontier: int, segment: int, *, leased_too: bool = False
    ) -> SegmentCounts:
        folder = self._folder
        with folder.change("drop") as change:
            books = management.drop(folder, change, frontier, segment, leased_too)
            # Delete the file first: a leftover could be taken for the filter of a new segment.
            folder.filters.drop(frontier, segment)
        return books

    def export(self, frontier: int, segment: int) -> Iterator[Known]:
        folder = self._folder
        with folder.reading():
            if segment not in folder.records.get(frontier, {}):
                return
            snapshot = folder.db.snapshot()
            grants = dict(folder.grants)
        first, end = all_states(place(frontier, segment))
        states = folder.scan(first, end, snapshot)
        bodies = folder.scan(b"b" + first[1:], b"b" + end[1:], snapshot)
        for (_, raw), (_, body) in zip(states, bodies, strict=True):
            yield _known(segment, raw, body, grants)

    def tend(self) -> bool:
        with self._folder.reading():
            return self._folder.filters.build()

    def close(self) -> None:
        self._folder.close()


def _known(segment: int, raw: bytes, body: bytes, grants: dict[int, Grant]) -> Known:
    status = read_status(raw)
    key, data, ext = unpack_body(body)
    grant = grants.get(status.generation) if status.state == State.RUNNING else None
    return Known(
        segment=segment,
        key=key,
        data=data,
        state=State(status.state),
        retry=status.retry,
        max_retry=status.max_retry,
        added_at=status.added_at,
        changed_at=status.changed_at,
        due=status.due,
        generation=status.generation,
        ext=ext,
        owner=grant.owner if grant else None,
        deadline=grant.deadline if grant else None,
    )
