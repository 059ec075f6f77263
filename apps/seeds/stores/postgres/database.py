"""Connections, transactions that are tried again, and the tables.

One partition for each segment: dropping a segment drops a table. Books are kept in some rows a
segment, one for each process that writes, so that processes do not wait for each other; together
they are exact, because they change in the transaction that changes the seeds.

Rows are locked in one order everywhere: leases, seeds, books. What still locks each other out is
told by the server and tried again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, LiteralString, TypeVar

import psycopg
from psycopg import errors, sql
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from apps.seeds.engine.errors import StoreUnavailable
from apps.seeds.engine.seeds import State
from apps.seeds.stores.base import BOOKS_FIELDS, COUNTERS, Books
from yardkit import failpoints

T = TypeVar("T")
Row = tuple[Any, ...]
Cursor = psycopg.Cursor[Row]

SCHEMA: Final = "crawlyard_seeds"
VERSION: Final = 1
_LOCK: Final = 0x5EED5
_TRIES: Final = 20
_SLOTS: Final = 16
_CONNECT_SECONDS: Final = 10.0
# Numbers of a queue are drawn from the server in blocks of this many.
_BLOCK: Final = 16_384

# Every query here finds its rows by an index, and joins by one: nothing else is to be planned,
# however little the server knows of a partition that fills.
_PLANS: Final = " ".join(
    f"-c enable_{way}=off" for way in ("seqscan", "bitmapscan", "material", "hashjoin", "mergejoin")
)

_TABLES: Final[LiteralString] = """
CREATE TABLE store (version int NOT NULL);
CREATE SEQUENCE generations;
CREATE SEQUENCE blocks;
CREATE TABLE grants (
    generation bigint PRIMARY KEY,
    frontier bigint NOT NULL,
    owner text NOT NULL,
    deadline bigint NOT NULL,
    -- seeds of it that nobody has finished
    remaining int NOT NULL,
    -- the owner's name of the call that it was given
    call text NOT NULL
);
CREATE INDEX grants_deadline ON grants (deadline);
CREATE TABLE books (
    frontier bigint NOT NULL,
    segment bigint NOT NULL,
    slot int NOT NULL,
    added bigint NOT NULL,
    duplicates bigint NOT NULL,
    pending bigint NOT NULL,
    leased bigint NOT NULL,
    succeeded bigint NOT NULL,
    failed bigint NOT NULL,
    ignored bigint NOT NULL,
    forgotten bigint NOT NULL,
    retried bigint NOT NULL,
    expired bigint NOT NULL,
    late bigint NOT NULL,
    PRIMARY KEY (frontier, segment, slot)
);
CREATE TABLE seeds (
    frontier bigint NOT NULL,
    segment bigint NOT NULL,
    hash bytea NOT NULL,
    state smallint NOT NULL,
    retry smallint NOT NULL,
    max_retry smallint NOT NULL,
    generation bigint NOT NULL,
    added_at bigint NOT NULL,
    changed_at bigint NOT NULL,
    due bigint NOT NULL,
    turn bigint NOT NULL,
    body bytea NOT NULL,
    -- the hash first: a partition has one frontier and one segment only
    PRIMARY KEY (hash, frontier, segment)
) PARTITION BY RANGE (frontier, segment);
CREATE INDEX seeds_pending ON seeds (due, turn) WHERE state IN (0, 3);
CREATE INDEX seeds_leased ON seeds (generation) WHERE state = 4;
"""

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
    """Somebody else changed what this transaction stands on."""


class Database:
    """A pool of connections to the schema, made where it is missing."""

    def __init__(self, url: str, *, connections: int) -> None:
        self._pool = ConnectionPool(
            url,
            min_size=1,
            max_size=connections,
            timeout=_CONNECT_SECONDS,
            open=False,
            check=ConnectionPool.check_connection,
            kwargs={"options": f"-c search_path={SCHEMA} {_PLANS}"},
        )
        self._slot = os.getpid() % _SLOTS
        self._partitions: set[tuple[int, int]] = set()
        with translated():
            try:
                self._pool.open(wait=True, timeout=_CONNECT_SECONDS)
                with self._pool.connection() as connection:
                    _make_tables(connection)
            except BaseException:
                self._pool.close()
                raise

    def run(
        self, name: str, work: Callable[[Cursor], T], places: Collection[tuple[int, int]] = ()
    ) -> T:
        """``work`` in a transaction; it may be called more than once, and counts once.

        ``places``: frontiers and segments that it stores seeds in.
        """
        for attempt in range(1, _TRIES + 1):
            for place in places:
                self._make_partition(*place)
            try:
                with translated(), self._pool.connection() as connection:
                    with connection.cursor() as cursor:
                        answer = work(cursor)
                    failpoints.hit(f"seeds.{name}.before_write")
                    connection.commit()
                    failpoints.hit(f"seeds.{name}.after_write")
                    return answer
            except (errors.DeadlockDetected, errors.SerializationFailure, TryAgain):
                if attempt == _TRIES:
                    raise StoreUnavailable("PostgreSQL: too many others change the same") from None
            except errors.CheckViolation:
                # The only one there is: the partition was dropped.
                self._partitions.clear()
        raise StoreUnavailable("PostgreSQL: the segment is dropped again and again")

    @contextmanager
    def stream(self, name: str) -> Iterator[psycopg.ServerCursor[Row]]:
        """A cursor of the server, for more rows than memory holds."""
        with (
            translated(),
            self._pool.connection() as connection,
            connection.cursor(name) as cursor,
        ):
            yield cursor

    def _make_partition(self, frontier: int, segment: int) -> None:
        """A place for the seeds of a segment, in a transaction of its own."""
        if (frontier, segment) in self._partitions:
            return

        def make(cursor: Cursor) -> None:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
            name = partition(frontier, segment)
            if not _is_there(cursor, name):
                texts = (
                    "CREATE TABLE {0} (LIKE seeds INCLUDING ALL) WITH (fillfactor = 70)",
                    # Examples to plan by until the server has counted for itself: without them it
                    # takes frontier and segment for selective, and reads all of a partition.
                    "INSERT INTO {0} SELECT {1}, {2}, decode(md5(n::text), 'hex'), mod(n, 6), 0, "
                    "3, n, n, n, n, n, '' FROM generate_series(1, 100) n",
                    "ANALYZE {0}",
                    "TRUNCATE {0}",
                    # Attaching locks the whole table far less than making a partition of it does.
                    "ALTER TABLE seeds ATTACH PARTITION {0} "
                    "FOR VALUES FROM ({1}, {2}) TO ({1}, {3})",
                )
                values = sql.Identifier(name), frontier, segment, segment + 1
                for text in texts:
                    cursor.execute(sql.SQL(text).format(*values))

        self.run("make_partition", make)
        self._partitions.add((frontier, segment))

    def forget_partition(self, frontier: int, segment: int) -> None:
        """It was dropped."""
        self._partitions.discard((frontier, segment))

    def book(self, cursor: Cursor, frontier: int, segment: int, books: Books) -> None:
        """Add to the books of a segment. Last in a transaction: others may wait for the row."""
        numbers = [getattr(books, name) for name in BOOKS_FIELDS]
        if any(numbers):
            cursor.execute(_BOOK, [frontier, segment, self._slot, *numbers])

    def close(self) -> None:
        """Idempotent."""
        self._pool.close()


def move(books: Books, old: int | None, new: int | None, count: int = 1) -> None:
    """Note that ``count`` seeds went from one state to another."""
    for state, difference in ((old, -count), (new, count)):
        if state is not None:
            name = COUNTERS[State(state)]
            setattr(books, name, getattr(books, name) + difference)


def one(cursor: Cursor) -> Row:
    """The row of a query that has one."""
    row = cursor.fetchone()
    if row is None:
        raise TryAgain
    return row


def next_turns(cursor: Cursor, count: int) -> Sequence[int]:
    """``count`` rising numbers that no entry of a queue has had."""
    blocks = -(-count // _BLOCK)
    cursor.execute("SELECT nextval('blocks') FROM generate_series(1, %s)", [blocks])
    firsts = [row[0] * _BLOCK for row in cursor.fetchall()]
    return [firsts[index // _BLOCK] + index % _BLOCK for index in range(count)]


def partition(frontier: int, segment: int) -> str:
    """The table of a segment."""
    return f"seeds_{frontier}_{segment}"


def _make_tables(connection: psycopg.Connection[Row]) -> None:
    with connection.transaction(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        cursor.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(SCHEMA)))
        if not _is_there(cursor, "store"):
            cursor.execute(_TABLES)
            cursor.execute("INSERT INTO store VALUES (%s)", [VERSION])
        cursor.execute("SELECT version FROM store")
        version = one(cursor)[0]
    if version != VERSION:
        raise StoreUnavailable(
            f"PostgreSQL: the seeds are of version {version}, this program reads {VERSION}"
        )


def _is_there(cursor: Cursor, table: str) -> bool:
    """Asked of the catalog: to_regclass() does not see what others made while we waited."""
    cursor.execute(
        "SELECT EXISTS (SELECT FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"
        " WHERE n.nspname = %s AND c.relname = %s)",
        [SCHEMA, table],
    )
    return bool(one(cursor)[0])


@contextmanager
def translated() -> Iterator[None]:
    """Say that the server is away as ``StoreUnavailable``."""
    try:
        yield
    except (errors.DeadlockDetected, errors.SerializationFailure, errors.CheckViolation):
        raise
    except (psycopg.Error, PoolTimeout, PoolClosed) as error:
        text = str(error).strip().partition("\n")[0]
        raise StoreUnavailable(f"PostgreSQL: {text}") from error
