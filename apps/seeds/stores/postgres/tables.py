"""Tables of known seeds and of the queue of pending ones.

No index of ``known`` contains a column that changes with a seed's state, so that leases and
finishes are HOT updates. Therefore the queue is a separate table, and a lease stores the list of
its seeds.

Both have one partition per segment: dropping a segment drops two tables. The counts of a segment
are spread over several rows, one per writing process, so that writers do not block each other;
their sum is exact, because they change in the transaction that changes the seeds.
"""

from __future__ import annotations

from typing import Any, Final, LiteralString

import psycopg
from psycopg import sql

from apps.seeds.engine.errors import SeedStoreUnavailable

Row = tuple[Any, ...]
Cursor = psycopg.Cursor[Row]

SCHEMA: Final = "crawlyard_seeds"
VERSION: Final = 2
_LOCK: Final = 0x5EED5

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
    call text NOT NULL,
    -- its seeds, also those that are finished by now: 16 bytes of each, together for each segment
    segments bigint[] NOT NULL,
    hashes bytea[] NOT NULL
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
"""
_PARTITIONED: Final[LiteralString] = """
CREATE TABLE known (
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
    body bytea NOT NULL
) PARTITION BY RANGE (frontier, segment);
-- one row for each pending seed, with its due and turn
CREATE TABLE queue (
    frontier bigint NOT NULL,
    segment bigint NOT NULL,
    due bigint NOT NULL,
    turn bigint NOT NULL,
    hash bytea NOT NULL
) PARTITION BY RANGE (frontier, segment);
CREATE INDEX queue_order ON queue (due, turn);
"""

# Half of each page stays free: a lease updates all rows of a page at once, and the old versions are
# removed later.
_FILLED: Final[LiteralString] = "(fillfactor = 50)"

_MAKE_KNOWN: Final[tuple[LiteralString, ...]] = (
    # By hash alone: a partition has a single frontier and segment.
    f"CREATE TABLE {{known}} (LIKE known, PRIMARY KEY (hash)) WITH {_FILLED}",
    # Initial statistics until the first ANALYZE: without them the planner takes frontier and
    # segment for selective, and scans the whole partition.
    "INSERT INTO {known} SELECT {frontier}, {segment}, decode(md5(n::text), 'hex'), mod(n, 6), 0, "
    "3, n, n, n, n, n, '' FROM generate_series(1, 100) n",
    "ANALYZE {known}",
    "TRUNCATE {known}",
)
_MAKE_QUEUE: Final[LiteralString] = "CREATE TABLE {queue} (LIKE queue INCLUDING ALL)"
# Attaching a table locks the parent far less than creating a partition of it.
_ATTACH: Final[LiteralString] = (
    "ALTER TABLE {0} ATTACH PARTITION {{{0}}} "
    "FOR VALUES FROM ({{frontier}}, {{segment}}) TO ({{frontier}}, {{end}})"
)

# Upgrade from version 1, where the queue was an index of the only table, ``seeds``. The table is
# renamed, so that a running process of that version can change nothing more.
_LISTS_OF_LEASES: Final[LiteralString] = """
ALTER TABLE grants ADD COLUMN segments bigint[], ADD COLUMN hashes bytea[];
UPDATE grants g SET (segments, hashes) = (
    SELECT coalesce(array_agg(p.segment), '{}'), coalesce(array_agg(p.hashes), '{}') FROM (
        SELECT s.segment, string_agg(s.hash, '') AS hashes FROM seeds s
        WHERE s.state = 4 AND s.generation = g.generation GROUP BY s.segment
    ) AS p
);
ALTER TABLE grants ALTER COLUMN segments SET NOT NULL, ALTER COLUMN hashes SET NOT NULL;
"""
_OLD_PARTITIONS: Final = """
SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = 'seeds'::regclass
"""
_TAKE_OVER: Final[tuple[LiteralString, ...]] = (
    "ALTER TABLE {old} RENAME TO {known}",
    f"ALTER TABLE {{known}} SET {_FILLED}",
    _MAKE_QUEUE,
    "INSERT INTO {queue} SELECT frontier, segment, due, turn, hash FROM {known} "
    "WHERE state IN (0, 3)",
)


def known_table(frontier: int, segment: int) -> str:
    """Return the name of the partition with a segment's seeds."""
    return f"known_{frontier}_{segment}"


def queue_table(frontier: int, segment: int) -> str:
    """Return the name of the partition with a segment's queue."""
    return f"queue_{frontier}_{segment}"


def make_tables(cursor: Cursor) -> None:
    """Create or upgrade the schema. Raises ``SeedStoreUnavailable`` for an unknown version."""
    _one_at_a_time(cursor)
    cursor.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(SCHEMA)))
    if not _exists(cursor, "store"):
        cursor.execute(_TABLES)
        cursor.execute(_PARTITIONED)
        cursor.execute("INSERT INTO store VALUES (%s)", [VERSION])
    version = _version(cursor)
    if version == 1:
        _take_over(cursor)
        version = VERSION
    if version != VERSION:
        raise SeedStoreUnavailable(
            f"PostgreSQL: the seeds are of version {version}, this program reads {VERSION}"
        )


def make_partition(cursor: Cursor, frontier: int, segment: int) -> None:
    """Create the partitions of a segment if they are missing."""
    _one_at_a_time(cursor)
    if not _exists(cursor, known_table(frontier, segment)):
        texts = *_MAKE_KNOWN, _MAKE_QUEUE, _ATTACH.format("known"), _ATTACH.format("queue")
        _run(cursor, texts, frontier, segment)


def drop_partition(cursor: Cursor, frontier: int, segment: int) -> None:
    """Drop the partitions of a segment and delete its counts."""
    _run(cursor, ("DROP TABLE {known}, {queue}",), frontier, segment)
    cursor.execute("DELETE FROM books WHERE frontier = %s AND segment = %s", [frontier, segment])


def _one_at_a_time(cursor: Cursor) -> None:
    """Serialize the creation of tables."""
    cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])


def _run(
    cursor: Cursor, texts: tuple[LiteralString, ...], frontier: int, segment: int, old: str = ""
) -> None:
    names = {
        "old": sql.Identifier(old),
        "known": sql.Identifier(known_table(frontier, segment)),
        "queue": sql.Identifier(queue_table(frontier, segment)),
        "frontier": sql.Literal(frontier),
        "segment": sql.Literal(segment),
        "end": sql.Literal(segment + 1),
    }
    for text in texts:
        cursor.execute(sql.SQL(text).format(**names))


def _take_over(cursor: Cursor) -> None:
    """Upgrade the tables of version 1."""
    cursor.execute("LOCK TABLE seeds, grants, books IN ACCESS EXCLUSIVE MODE")
    cursor.execute(_LISTS_OF_LEASES)
    cursor.execute(_PARTITIONED)
    cursor.execute(_OLD_PARTITIONS)
    for (old,) in cursor.fetchall():
        frontier, segment = map(int, old.split("_")[1:])
        _run(cursor, ("ALTER TABLE seeds DETACH PARTITION {old}",), frontier, segment, old)
        _drop_indexes(cursor, old)
        texts = *_TAKE_OVER, _ATTACH.format("known"), _ATTACH.format("queue")
        _run(cursor, texts, frontier, segment, old)
    cursor.execute("DROP TABLE seeds")
    cursor.execute("UPDATE store SET version = %s", [VERSION])


def _drop_indexes(cursor: Cursor, table: str) -> None:
    """Drop all indexes except the primary key."""
    cursor.execute(
        "SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
        "WHERE i.indrelid = %s::regclass AND NOT i.indisprimary",
        [table],
    )
    for (name,) in cursor.fetchall():
        cursor.execute(sql.SQL("DROP INDEX {}").format(sql.Identifier(name)))


def _version(cursor: Cursor) -> int:
    cursor.execute("SELECT version FROM store")
    row = cursor.fetchone()
    return row[0] if row else 0


def _exists(cursor: Cursor, table: str) -> bool:
    """Return whether a relation exists. Queries the catalog, because to_regclass() does not see
    relations that were committed while this transaction waited.
    """
    cursor.execute(
        "SELECT 1 FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"
        " WHERE n.nspname = %s AND c.relname = %s",
        [SCHEMA, table],
    )
    return cursor.fetchone() is not None
