"""``SeedStore`` on PostgreSQL: each call is one transaction, or one per slice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from apps.seeds.engine.errors import CallInWork
from apps.seeds.engine.filters import FilterSettings
from apps.seeds.engine.keys import key_hash
from apps.seeds.engine.seeds import ResolvedSeed, State
from apps.seeds.stores.base import (
    AddResult,
    Finish,
    Finished,
    Guard,
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
from apps.seeds.stores.postgres import inserts, leases, management, moves
from apps.seeds.stores.postgres.database import SeedDatabase, one
from apps.seeds.stores.postgres.tables import SCHEMA, Cursor, Row, known_table, queue_table

MAX_FILTERS: Final = 64
CONNECTIONS: Final = 4
_EXPORT_ROWS: Final = 2000

_KNOWN = """
SELECT s.state, s.retry, s.max_retry, s.added_at, s.changed_at, s.due, s.generation, s.body,
       g.owner, g.deadline
FROM known s LEFT JOIN grants g ON s.state = 4 AND g.generation = s.generation
WHERE s.frontier = %s AND s.segment = %s
"""


class PostgresStore:
    """Seeds in the schema ``crawlyard_seeds`` of a database; processes may share it.

    Raises:
        SeedStoreUnavailable: the server cannot be reached, or rejects the connection.
    """

    def __init__(
        self, url: str, *, connections: int = CONNECTIONS, max_filters: int = MAX_FILTERS
    ) -> None:
        self._database = SeedDatabase(url, connections=connections)
        self._filters = inserts.LocalFilters(max_filters)
        self._guard = Guard()

    def set_filter(self, frontier: int, settings: FilterSettings) -> None:
        self._filters.settings[frontier] = settings.checked()

    def add(self, frontier: int, seeds: Sequence[ResolvedSeed], *, now: int) -> list[AddResult]:
        check_batch(seeds)
        self._guard.time(now)

        def work(cursor: Cursor) -> list[AddResult]:
            return inserts.add(self._database, self._filters, cursor, frontier, seeds, now)

        places = {(frontier, seed.segment) for seed in seeds}
        return self._database.run("add", work, places) if seeds else []

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
        self._guard.lease(owner, limit, seconds)
        self._guard.time(now)
        deadline = now + round(seconds * 1000)

        def work(cursor: Cursor) -> Lease:
            generation = leases.begin(cursor, frontier, owner, call)
            check()
            earlier = leases.recall(cursor, frontier, owner, call) if again else None
            return earlier or leases.lease(
                self._database, cursor, frontier, generation, owner, limit, deadline, now, call
            )

        try:
            return self._database.run("lease", work)
        except CallInWork:
            self._database.run(
                "part", lambda cursor: leases.part_from(cursor, frontier, owner, call)
            )
            raise

    def recall(self, frontier: int, *, owner: str, call: str) -> Lease | None:
        return self._database.run(
            "recall", lambda cursor: leases.recall(cursor, frontier, owner, call)
        )

    def extend(
        self, frontier: int, generation: int, *, owner: str, seconds: float, now: int
    ) -> int:
        check_seconds(seconds)
        self._guard.time(now)
        deadline = now + round(seconds * 1000)
        return self._database.run(
            "extend", lambda cursor: leases.extend(cursor, frontier, generation, owner, deadline)
        )

    def extend_all(self, *, seconds: float, now: int) -> None:
        check_seconds(seconds)
        self._guard.time(now)
        deadline = now + round(seconds * 1000)
        self._database.run(
            "extend",
            lambda cursor: cursor.execute(
                "UPDATE grants SET deadline = %(deadline)s WHERE deadline < %(deadline)s",
                {"deadline": deadline},
            ),
        )

    def finish(
        self, frontier: int, finishes: Sequence[Finish], *, owner: str, now: int
    ) -> list[Finished]:
        check_batch(finishes)
        check_owner(owner)
        self._guard.time(now)
        return self._database.run(
            "finish",
            lambda cursor: leases.finish(self._database, cursor, frontier, finishes, owner, now),
        )

    def give_back(self, frontier: int, generation: int, *, owner: str, now: int) -> int:
        self._guard.time(now)
        return self._database.run(
            "give_back",
            lambda cursor: leases.give_back(
                self._database, cursor, frontier, generation, owner, now
            ),
        )

    def expire(self, *, now: int) -> int:
        self._guard.time(now)
        expired = 0
        while True:
            count = self._database.run(
                "expire", lambda cursor: leases.expire(self._database, cursor, now)
            )
            if count is None:
                return expired
            expired += count

    def next_due(self, frontier: int, *, now: int) -> int | None:
        def work(cursor: Cursor) -> int | None:
            counts = management.all_counts(cursor, frontier)
            cursor.execute(
                "SELECT min(due) FROM queue WHERE frontier = %s AND segment = ANY(%s) AND due > %s",
                [
                    frontier,
                    [
                        segment
                        for segment, segment_counts in counts.items()
                        if segment_counts.pending
                    ],
                    now,
                ],
            )
            due: int | None = one(cursor)[0]
            return due

        return self._database.run("next_due", work)

    def pending(self, frontier: int) -> int:
        def work(cursor: Cursor) -> int:
            cursor.execute(
                "SELECT coalesce(sum(pending), 0)::bigint FROM books WHERE frontier = %s",
                [frontier],
            )
            count: int = one(cursor)[0]
            return count

        return self._database.run("pending", work)

    def segments(self, frontier: int) -> list[Segment]:
        def work(cursor: Cursor) -> list[Segment]:
            counts = management.all_counts(cursor, frontier)
            tables = [
                f"{SCHEMA}.{table(frontier, segment)}"
                for table in (known_table, queue_table)
                for segment in counts
            ]
            cursor.execute(
                "SELECT coalesce(pg_total_relation_size(to_regclass(name)), 0) "
                "FROM unnest(%s::text[]) WITH ORDINALITY AS t (name, place) ORDER BY place",
                [tables],
            )
            sizes = [row[0] for row in cursor.fetchall()]
            return [
                Segment(segment, those, known + queue, self._filters.state(frontier, segment))
                for (segment, those), known, queue in zip(
                    counts.items(), sizes[: len(counts)], sizes[len(counts) :], strict=True
                )
            ]

        return self._database.run("segments", work)

    def lookup(self, frontier: int, segment: int, key: str) -> Known | None:
        def work(cursor: Cursor) -> Known | None:
            cursor.execute(f"{_KNOWN} AND s.hash = %s", [frontier, segment, key_hash(key)])
            row = cursor.fetchone()
            return None if row is None else _known(segment, row)

        return self._database.run("lookup", work)

    def reopen(self, frontier: int, segment: int, key: str, *, now: int) -> None:
        self._guard.time(now)
        self._database.run(
            "reopen",
            lambda cursor: management.reopen(self._database, cursor, frontier, segment, key, now),
        )

    def forget(self, frontier: int, segment: int, key: str, *, now: int) -> None:
        self._guard.time(now)
        self._database.run(
            "forget",
            lambda cursor: management.forget(self._database, cursor, frontier, segment, key),
        )

    def reopen_failed_slice(
        self, frontier: int, source: int, target: int, *, after: bytes, limit: int, now: int
    ) -> ReopenedSlice:
        check_segment(target)
        check_limit(limit)
        self._guard.time(now)

        def work(cursor: Cursor) -> ReopenedSlice:
            management.known(cursor, frontier, source)
            seeds, end = management.failed(cursor, frontier, source, after, limit)
            fresh = 0
            if seeds:
                fresh = management.reopen_slice(
                    self._database, cursor, frontier, source, target, seeds, now
                )
            return ReopenedSlice(fresh, len(seeds) - fresh, end)

        # Do not create a partition for the target if the source does not exist.
        self._database.run("lookup", lambda cursor: management.known(cursor, frontier, source))
        return self._database.run("reopen_failed", work, [(frontier, target)])

    def restore(self, frontier: int, seeds: Sequence[Known], *, now: int) -> list[AddResult]:
        check_batch(seeds)
        self._guard.time(now)
        for seed in seeds:
            check_segment(seed.segment)
        places = {(frontier, seed.segment) for seed in seeds}
        return self._database.run(
            "restore", lambda cursor: moves.restore(self._database, cursor, frontier, seeds), places
        )

    def read(self, frontier: int, segment: int, *, after: bytes = b"", limit: int) -> SeedPage:
        check_limit(limit)

        def work(cursor: Cursor) -> SeedPage:
            end, last = moves.page_end(cursor, frontier, segment, after, limit)
            cursor.execute(
                f"{_KNOWN} AND s.hash > %s AND s.hash <= %s ORDER BY s.hash",
                [frontier, segment, after, end],
            )
            seeds = [_known(segment, row) for row in cursor.fetchall()]
            return SeedPage(seeds, None if last else end)

        return self._database.run("read", work)

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
        self._guard.time(now)
        ready: set[tuple[int, int]] = set()
        while True:
            try:
                done = self._database.run(
                    "move",
                    lambda cursor: moves.move(
                        self._database,
                        cursor,
                        frontier,
                        segment,
                        target,
                        regroup,
                        after,
                        limit,
                        ready,
                    ),
                    ready,
                )
            except moves.NeedPlaces as needed:
                ready.update(needed.places)
                continue
            if done.after is None:
                self._database.forget_partition(frontier, segment)
                self._filters.drop(frontier, segment)
            return done

    def drop_segment(
        self, frontier: int, segment: int, *, leased_too: bool = False
    ) -> SegmentCounts:
        counts = self._database.run(
            "drop", lambda cursor: management.drop(cursor, frontier, segment, leased_too)
        )
        self._database.forget_partition(frontier, segment)
        self._filters.drop(frontier, segment)
        return counts

    def export(self, frontier: int, segment: int) -> Iterator[Known]:
        with self._database.stream("export") as cursor:
            cursor.itersize = _EXPORT_ROWS
            cursor.execute(_KNOWN, [frontier, segment])
            for row in cursor:
                yield _known(segment, row)

    def tend(self) -> bool:
        """Return False: PostgreSQL needs no background work from here."""
        return False

    def close(self) -> None:
        self._database.close()


def _known(segment: int, row: Row) -> Known:
    state, retry, max_retry, added_at, changed_at, due, generation, body, owner, deadline = row
    key, data, ext = unpack_body(body)
    return Known(
        segment=segment,
        key=key,
        data=data,
        state=State(state),
        retry=retry,
        max_retry=max_retry,
        added_at=added_at,
        changed_at=changed_at,
        due=due,
        generation=generation,
        ext=ext,
        owner=owner,
        deadline=deadline,
    )
