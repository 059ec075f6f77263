"""Connections, and transactions with retries.

Lock order: leases, queue, seeds, counts. Remaining deadlocks, such as between forgetting and
leasing the same seed, are detected by the server and retried.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar

import psycopg
from psycopg import errors, sql
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from apps.runtime.engine.postgres_link import link_options
from apps.seeds.engine.errors import SeedStoreUnavailable
from apps.seeds.engine.seeds import State
from apps.seeds.stores.base import BOOKS_FIELDS, COUNTERS, SegmentCounts
from apps.seeds.stores.postgres.tables import SCHEMA, Cursor, Row, make_partition, make_tables
from yardkit import failpoints

T = TypeVar("T")
_TRIES: Final = 20
_SLOTS: Final = 16
_CONNECT_SECONDS: Final = 10.0
# Queue numbers are taken from the server in blocks of this size, larger than any call needs.
BLOCK: Final = 16_384

# Forces index scans and nested loops: every query here is selective, but the planner lacks
# statistics while a partition fills.
_PLANS: Final = " ".join(
    f"-c enable_{way}=off" for way in ("seqscan", "bitmapscan", "material", "hashjoin", "mergejoin")
)

_BOOK: Final = sql.SQL(
    "INSERT INTO books AS b (frontier, segment, slot, {fields}) VALUES (%s, %s, %s, {values}) "
    "ON CONFLICT (frontier, segment, slot) DO UPDATE SET {sums}"
).format(
    fields=sql.SQL(", ").join(map(sql.Identifier, BOOKS_FIELDS)),
    values=sql.SQL(", ").join([sql.Placeholder()] * len(BOOKS_FIELDS)),
    sums=sql.SQL(", ").join(
        sql.SQL("{0} = b.{0} + excluded.{0}").format(sql.Identifier(name)) for name in BOOKS_FIELDS
    ),
)


class TryAgain(Exception):
    """A concurrent transaction changed data that this one is based on; retry."""


class SeedDatabase:
    """Connection pool and schema of the store; the schema is created if missing."""

    def __init__(self, url: str, *, connections: int) -> None:
        self._pool = ConnectionPool(
            url,
            min_size=1,
            max_size=connections,
            timeout=_CONNECT_SECONDS,
            open=False,
            check=ConnectionPool.check_connection,
            kwargs={**link_options(url), "options": f"-c search_path={SCHEMA} {_PLANS}"},
        )
        self._slot = os.getpid() % _SLOTS
        self._partitions: set[tuple[int, int]] = set()
        with translated():
            try:
                self._pool.open(wait=True, timeout=_CONNECT_SECONDS)
                with self._pool.connection() as connection, connection.cursor() as cursor:
                    make_tables(cursor)
            except BaseException:
                self._pool.close()
                raise

    def run(
        self, name: str, work: Callable[[Cursor], T], places: Collection[tuple[int, int]] = ()
    ) -> T:
        """Run ``work`` in a transaction; it may be called several times and is committed once.

        ``places``: (frontier, segment) pairs whose partitions must exist.
        """
        for attempt in range(1, _TRIES + 1):
            for place in places:
                self._make_partition(*place)
            try:
                with translated(), self._pool.connection() as connection:
                    # Pipeline mode: only reads wait for the server; writes are sent together with
                    # the commit.
                    with connection.pipeline(), connection.cursor() as cursor:
                        answer = work(cursor)
                        failpoints.hit(f"seeds.{name}.before_write")
                        connection.commit()
                    failpoints.hit(f"seeds.{name}.after_write")
                    return answer
            except (errors.DeadlockDetected, errors.SerializationFailure, TryAgain):
                if attempt == _TRIES:
                    raise SeedStoreUnavailable(
                        "PostgreSQL: too many others change the same"
                    ) from None
            except errors.CheckViolation:
                # Only cause of this error here: the partition was dropped.
                self._partitions.clear()
        raise SeedStoreUnavailable("PostgreSQL: the segment is dropped again and again")

    @contextmanager
    def stream(self, name: str) -> Iterator[psycopg.ServerCursor[Row]]:
        """Open a server-side cursor, for results larger than memory."""
        with translated(), self._pool.connection() as connection, connection.cursor(name) as cursor:
            yield cursor

    def _make_partition(self, frontier: int, segment: int) -> None:
        """Create the partition of a segment in a transaction of its own."""
        if (frontier, segment) in self._partitions:
            return
        self.run("make_partition", lambda cursor: make_partition(cursor, frontier, segment))
        self._partitions.add((frontier, segment))

    def forget_partition(self, frontier: int, segment: int) -> None:
        """Remove a dropped partition from the cache of existing ones."""
        self._partitions.discard((frontier, segment))

    def book(self, cursor: Cursor, frontier: int, segment: int, counts: SegmentCounts) -> None:
        """Add to the counts of a segment. Call it last: the row stays locked until the commit."""
        numbers = [getattr(counts, name) for name in BOOKS_FIELDS]
        if any(numbers):
            cursor.execute(_BOOK, [frontier, segment, self._slot, *numbers])

    def close(self) -> None:
        """Idempotent."""
        self._pool.close()


def move(counts: SegmentCounts, old: int | None, new: int | None, count: int = 1) -> None:
    """Count the move of ``count`` seeds from one state to another."""
    for state, difference in ((old, -count), (new, count)):
        if state is not None:
            name = COUNTERS[State(state)]
            setattr(counts, name, getattr(counts, name) + difference)


def one(cursor: Cursor) -> Row:
    """Return the single row of a query."""
    row = cursor.fetchone()
    if row is None:
        raise TryAgain
    return row


def next_turns(cursor: Cursor, count: int) -> Sequence[int]:
    """Return ``count`` rising queue numbers that were never used before."""
    blocks = -(-count // BLOCK)
    cursor.execute("SELECT nextval('blocks') FROM generate_series(1, %s)", [blocks])
    firsts = [row[0] * BLOCK for row in cursor.fetchall()]
    return [firsts[index // BLOCK] + index % BLOCK for index in range(count)]


@contextmanager
def translated() -> Iterator[None]:
    """Translate errors of the server connection to ``SeedStoreUnavailable``."""
    try:
        yield
    except (errors.DeadlockDetected, errors.SerializationFailure, errors.CheckViolation):
        raise
    except (psycopg.Error, PoolTimeout, PoolClosed) as error:
        text = str(error).strip().partition("\n")[0]
        raise SeedStoreUnavailable(f"PostgreSQL: {text}") from error
