"""Read seeds in pages, restore exported seeds, and move seeds between segments."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from psycopg import sql

from apps.seeds.engine.errors import SeedInUse
from apps.seeds.engine.keys import key_hash
from apps.seeds.engine.seeds import State
from apps.seeds.engine.segments import segment_text
from apps.seeds.stores.base import (
    MAX_PAGE_BYTES,
    AddResult,
    Known,
    MovedSlice,
    Regroup,
    SegmentCounts,
    pending_state,
    rest_of,
)
from apps.seeds.stores.bodies import pack_parts, unpack_body
from apps.seeds.stores.postgres.database import SeedDatabase, TryAgain, next_turns
from apps.seeds.stores.postgres.database import move as book_move
from apps.seeds.stores.postgres.inserts import known_since
from apps.seeds.stores.postgres.management import known, remove
from apps.seeds.stores.postgres.tables import Cursor, drop_partition, known_table

_SIZES = """
SELECT hash, octet_length(body) FROM known
WHERE frontier = %s AND segment = %s AND hash > %s ORDER BY hash LIMIT %s
"""
_TAKE = """
SELECT hash, state, retry, max_retry, generation, added_at, changed_at, due, turn, body FROM known
WHERE frontier = %s AND segment = %s AND hash > %s ORDER BY hash LIMIT %s FOR UPDATE
"""
_PUT = """
WITH put AS (
    INSERT INTO known (frontier, segment, hash, state, retry, max_retry, generation, added_at,
                       changed_at, due, turn, body)
    SELECT %s, %s, u.* FROM unnest(%b::bytea[], %b::smallint[], %b::smallint[], %b::smallint[],
        %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bytea[]) AS u
    ORDER BY 3
    ON CONFLICT DO NOTHING
    RETURNING frontier, segment, due, turn, hash, state
), queued AS (
    INSERT INTO queue SELECT frontier, segment, due, turn, hash FROM put WHERE state IN (0, 3)
)
SELECT hash FROM put
"""


class StoredSeedRow(msgspec.Struct, array_like=True):
    """Row of a seed that is restored or moved with its state."""

    hash: bytes
    state: int
    retry: int
    max_retry: int
    generation: int
    added_at: int
    changed_at: int
    due: int
    turn: int
    body: bytes


class NeedPlaces(Exception):
    """Target segments have no partition yet."""

    def __init__(self, places: set[tuple[int, int]]) -> None:
        super().__init__()
        self.places = places


def page_end(
    cursor: Cursor, frontier: int, segment: int, after: bytes, limit: int
) -> tuple[bytes, bool]:
    """Return the last hash of the next page (``after`` if empty), and whether it is the last
    page.
    """
    cursor.execute(_SIZES, [frontier, segment, after, limit])
    rows = cursor.fetchall()
    size = 0
    for count, (body, takes) in enumerate(rows):
        if count and size + takes > MAX_PAGE_BYTES:
            return after, False
        size += takes
        after = body
    return after, len(rows) < limit


def restore(
    database: SeedDatabase, cursor: Cursor, frontier: int, seeds: Sequence[Known]
) -> list[AddResult]:
    """Store exported seeds that are new; return one result for each."""
    segments: dict[int, list[int]] = {}
    for index, seed in enumerate(seeds):
        segments.setdefault(seed.segment, []).append(index)
    answers: dict[int, AddResult] = {}
    counts: dict[int, SegmentCounts] = {}
    # Queue numbers follow the order of the call, across segments: a move may merge segments.
    turns = next_turns(cursor, len(seeds))
    for segment, places in sorted(segments.items()):
        hashes = [key_hash(seeds[index].key) for index in places]
        rows: dict[bytes, StoredSeedRow] = {}
        for index, seed_hash in zip(places, hashes, strict=True):
            rows.setdefault(seed_hash, _whole(seed_hash, seeds[index], turns[index]))
        inserted = put(cursor, frontier, segment, list(rows.values()))
        there = known_since(cursor, frontier, segment, [row for row in rows if row not in inserted])
        if len(there) + len(inserted) != len(rows):
            # Forgotten between insert and query, so it is new after all.
            raise TryAgain
        changed = counts[segment] = SegmentCounts(added=len(inserted))
        changed.duplicates = len(places) - len(inserted)
        for seed_hash in inserted:
            book_move(changed, None, rows[seed_hash].state)
        for index, seed_hash in zip(places, hashes, strict=True):
            mine = rows[seed_hash]
            answers[index] = there.get(seed_hash) or AddResult(
                True, mine.added_at, State(mine.state)
            )
            there.setdefault(seed_hash, AddResult(False, mine.added_at, State(mine.state)))
    for segment, changed in counts.items():
        database.book(cursor, frontier, segment, changed)
    return [answers[index] for index in range(len(seeds))]


def _whole(one: bytes, seed: Known, turn: int) -> StoredSeedRow:
    body = pack_parts(seed.key, seed.data, seed.ext)
    times = seed.added_at, seed.changed_at, seed.due
    return StoredSeedRow(
        one, pending_state(seed), seed.retry, seed.max_retry, 0, *times, turn, body
    )


def put(cursor: Cursor, frontier: int, segment: int, rows: Sequence[StoredSeedRow]) -> set[bytes]:
    """Store the seeds that the segment does not have; return their hashes."""
    if not rows:
        return set()
    columns = list(map(list, zip(*map(msgspec.structs.astuple, rows), strict=True)))
    cursor.execute(_PUT, [frontier, segment, *columns])
    return {row[0] for row in cursor.fetchall()}


def move(
    database: SeedDatabase,
    cursor: Cursor,
    frontier: int,
    segment: int,
    target: int,
    regroup: Regroup,
    after: bytes,
    limit: int,
    ready: set[tuple[int, int]],
) -> MovedSlice:
    """Move a slice of a segment to another frontier. ``ready``: places that have a partition.

    Raises:
        NeedPlaces: call it again after creating them.
    """
    counts = known(cursor, frontier, segment)
    cursor.execute(_TAKE, [frontier, segment, after, limit])
    rows = [StoredSeedRow(*row) for row in cursor.fetchall()]
    leased = counts.leased or sum(row.state == State.RUNNING for row in rows)
    if leased:
        raise SeedInUse(f"{leased} seeds of segment {segment_text(segment)} are leased")
    if not rows:
        return _close(database, cursor, frontier, segment, target, regroup, ready)
    coming, kept = _regrouped(rows, segment, regroup)
    needed = {(target, place) for place in coming} - ready
    if needed:
        raise NeedPlaces(needed)
    changed: dict[tuple[int, int], SegmentCounts] = {
        (frontier, segment): SegmentCounts(added=-len(rows))
    }
    for row in rows:
        book_move(changed[frontier, segment], row.state, None)
    met = 0
    for place, those in sorted(coming.items()):
        # Of two seeds with the same new place, the first one is kept.
        distinct = {row.hash: row for row in reversed(those)}
        inserted = put(cursor, target, place, list(distinct.values()))
        arrived = changed[target, place] = SegmentCounts(added=len(inserted))
        arrived.duplicates = len(those) - len(inserted)
        for key in inserted:
            book_move(arrived, None, distinct[key].state)
        met += arrived.duplicates
    remove(cursor, frontier, segment, [row.hash for row in rows])
    for (owner_segment, place), counts in sorted(changed.items()):
        database.book(cursor, owner_segment, place, counts)
    return MovedSlice(len(rows) - met, met, kept, rows[-1].hash)


def _regrouped(
    rows: Sequence[StoredSeedRow], segment: int, regroup: Regroup
) -> tuple[dict[int, list[StoredSeedRow]], int]:
    """Group seeds by new segment, with their new keys; also return how many keep a rejected old
    place.
    """
    coming: dict[int, list[StoredSeedRow]] = {}
    kept = 0
    for row in rows:
        key, data, ext = unpack_body(row.body)
        new = regroup(segment, key, data, row.due)
        kept += new.kept
        changes = {} if new.key == key else {"hash": key_hash(new.key)}
        moved = msgspec.structs.replace(row, due=new.due, **changes)
        if new.key != key:
            moved.body = pack_parts(new.key, data, ext)
        coming.setdefault(new.segment, []).append(moved)
    return coming, kept


def _close(
    database: SeedDatabase,
    cursor: Cursor,
    frontier: int,
    segment: int,
    target: int,
    regroup: Regroup,
    ready: set[tuple[int, int]],
) -> MovedSlice:
    """Drop an emptied segment, and add its remaining counts to the new segment of its beginning."""
    home = regroup(segment, "", "home", segment).segment
    if (target, home) not in ready:
        # Counts exist only with a partition: both are dropped or moved together.
        raise NeedPlaces({(target, home)})
    table = sql.Identifier(known_table(frontier, segment))
    # Lock the table before the counts, as other transactions do.
    cursor.execute(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(table))
    counts = known(cursor, frontier, segment)
    if counts.added > counts.forgotten:
        # Seeds were added behind the cursor meanwhile.
        return MovedSlice(0, 0, 0, b"")
    drop_partition(cursor, frontier, segment)
    database.book(cursor, target, home, rest_of(counts))
    return MovedSlice(0, 0, 0, None)
