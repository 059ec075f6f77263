"""Reopen, forget and drop stored seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from psycopg import sql

from apps.seeds.engine.errors import SeedInUse, SeedNotFinal, UnknownSeed, UnknownSegment
from apps.seeds.engine.keys import key_hash
from apps.seeds.engine.seeds import FINAL, TIMELESS_DUE, State
from apps.seeds.engine.segments import segment_text
from apps.seeds.stores.base import BOOKS_FIELDS, SegmentCounts
from apps.seeds.stores.postgres.database import SeedDatabase, move, next_turns
from apps.seeds.stores.postgres.inserts import NewSeedRow, insert
from apps.seeds.stores.postgres.leases import leave, write_moves
from apps.seeds.stores.postgres.tables import Cursor, drop_partition, known_table

_SUMS = sql.SQL(", ").join(
    sql.SQL("sum({})::bigint").format(sql.Identifier(name)) for name in BOOKS_FIELDS
)
_BOOKS = sql.SQL(
    "SELECT segment, {} FROM books WHERE frontier = %s GROUP BY segment ORDER BY segment"
).format(_SUMS)
_NEXT = """
SELECT hash, state FROM known
WHERE frontier = %s AND segment = %s AND hash > %s ORDER BY hash LIMIT %s
"""
_FAILED = """
SELECT hash, max_retry, body FROM known
WHERE frontier = %s AND segment = %s AND hash = ANY(%b) AND state = 2
ORDER BY hash FOR UPDATE
"""
_REMOVE = """
WITH gone AS (
    DELETE FROM known
    WHERE frontier = %(frontier)s AND segment = %(segment)s AND hash = ANY(%(hashes)b)
    RETURNING due, turn
)
DELETE FROM queue q USING gone
WHERE q.frontier = %(frontier)s AND q.segment = %(segment)s
    AND q.due = gone.due AND q.turn = gone.turn
"""


def all_counts(cursor: Cursor, frontier: int) -> dict[int, SegmentCounts]:
    """Return the counts of every segment, in order."""
    cursor.execute(_BOOKS, [frontier])
    return {row[0]: SegmentCounts(*row[1:]) for row in cursor.fetchall()}


def known(cursor: Cursor, frontier: int, segment: int) -> SegmentCounts:
    """Return the counts of a segment. Raises ``UnknownSegment``."""
    counts = all_counts(cursor, frontier).get(segment)
    if counts is None:
        raise UnknownSegment(f"there is no segment {segment_text(segment)}")
    return counts


def _find(cursor: Cursor, frontier: int, segment: int, key: str) -> tuple[bytes, int]:
    seed_hash = key_hash(key)
    cursor.execute(
        "SELECT state FROM known WHERE frontier = %s AND segment = %s AND hash = %s FOR UPDATE",
        [frontier, segment, seed_hash],
    )
    row = cursor.fetchone()
    if row is None:
        raise UnknownSeed(f"segment {segment_text(segment)} has no key {key[:200]}")
    return seed_hash, row[0]


def reopen(
    database: SeedDatabase, cursor: Cursor, frontier: int, segment: int, key: str, now: int
) -> None:
    """Make a finished seed pending again."""
    seed_hash, state = _find(cursor, frontier, segment, key)
    if state not in FINAL:
        raise SeedNotFinal("the seed has not ended, it is pending or leased")
    write_moves(
        cursor, frontier, segment, {seed_hash: (State.INIT, 0, next_turns(cursor, 1)[0])}, now
    )
    counts = SegmentCounts()
    move(counts, state, State.INIT)
    database.book(cursor, frontier, segment, counts)


def forget(database: SeedDatabase, cursor: Cursor, frontier: int, segment: int, key: str) -> None:
    """Delete a seed that is not leased."""
    seed_hash, state = _find(cursor, frontier, segment, key)
    if state == State.RUNNING:
        raise SeedInUse("the seed is leased; it can be forgotten when that is over")
    remove(cursor, frontier, segment, [seed_hash])
    counts = SegmentCounts(forgotten=1)
    move(counts, state, None)
    database.book(cursor, frontier, segment, counts)


def remove(cursor: Cursor, frontier: int, segment: int, hashes: Sequence[bytes]) -> None:
    """Delete seeds that are not leased, and their queue entries."""
    values = {"frontier": frontier, "segment": segment, "hashes": list(hashes)}
    cursor.execute(_REMOVE, values)


def failed(
    cursor: Cursor, frontier: int, segment: int, after: bytes, most: int
) -> tuple[Sequence[tuple[bytes, int, bytes]], bytes | None]:
    """Return hash, max_retry and body of the failed seeds among the next ``most``, and the last
    hash read.
    """
    cursor.execute(_NEXT, [frontier, segment, after, most])
    rows = cursor.fetchall()
    failed_keys = [key for key, state in rows if state == State.FAILED]
    if failed_keys:
        cursor.execute(_FAILED, [frontier, segment, failed_keys])
        failed_keys = [(row[0], row[1], row[2]) for row in cursor.fetchall()]
    return failed_keys, rows[-1][0] if len(rows) == most else None


def reopen_slice(
    database: SeedDatabase,
    cursor: Cursor,
    frontier: int,
    source: int,
    target: int,
    seeds: Sequence[tuple[bytes, int, bytes]],
    now: int,
) -> int:
    """Add failed seeds of ``source`` to ``target`` as pending; return how many were new there."""
    if source == target:
        turns = next_turns(cursor, len(seeds))
        moved = {
            key: (int(State.INIT), 0, turn) for (key, _, _), turn in zip(seeds, turns, strict=True)
        }
        write_moves(cursor, frontier, source, moved, now)
        counts = SegmentCounts(failed=-len(seeds), pending=len(seeds))
        database.book(cursor, frontier, source, counts)
        return len(seeds)
    rows = [
        NewSeedRow(key, target or TIMELESS_DUE, max_retry, body) for key, max_retry, body in seeds
    ]
    fresh = len(insert(cursor, frontier, target, rows, now))
    counts = SegmentCounts(added=fresh, pending=fresh, duplicates=len(seeds) - fresh)
    database.book(cursor, frontier, target, counts)
    return fresh


def drop(cursor: Cursor, frontier: int, segment: int, leased_too: bool) -> SegmentCounts:
    """Drop a segment with its leased seeds."""
    # Lock the table before the counts, as other transactions do.
    known(cursor, frontier, segment)
    table = sql.Identifier(known_table(frontier, segment))
    cursor.execute(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(table))
    counts = known(cursor, frontier, segment)
    if counts.leased and not leased_too:
        raise SeedInUse(f"{counts.leased} seeds of the segment are leased")
    if counts.leased:
        cursor.execute(
            sql.SQL("SELECT generation, count(*) FROM {} WHERE state = 4 GROUP BY 1").format(table)
        )
        leave(cursor, Counter(dict(cursor.fetchall())))
    drop_partition(cursor, frontier, segment)
    return counts
