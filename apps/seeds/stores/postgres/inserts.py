"""Insertion of seeds. The unique key of a segment decides; filters only save queries."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from apps.seeds.engine.filters import FilterSettings, FilterState, SegmentFilter
from apps.seeds.engine.seeds import ResolvedSeed, State
from apps.seeds.stores.base import AddResult, SegmentCounts
from apps.seeds.stores.bodies import pack_body
from apps.seeds.stores.postgres.database import BLOCK, SeedDatabase, TryAgain
from apps.seeds.stores.postgres.tables import Cursor

_INSERT = """
WITH fresh AS (
    INSERT INTO known (frontier, segment, hash, state, retry, max_retry, generation, added_at,
                       changed_at, due, turn, body)
    SELECT %(frontier)s, %(segment)s, u.hash, 0, 0, u.max_retry, 0, %(now)s, %(now)s, u.due,
           (SELECT nextval('blocks')) * %(block)s + u.place, u.body
    FROM unnest(%(hashes)b::bytea[], %(most)b::smallint[], %(due)b::bigint[], %(bodies)b::bytea[])
        WITH ORDINALITY AS u (hash, max_retry, due, body, place)
    -- one order for all, so that two who add the same do not lock each other out
    ORDER BY u.hash
    ON CONFLICT DO NOTHING
    RETURNING due, turn, hash
), queued AS (
    INSERT INTO queue SELECT %(frontier)s, %(segment)s, due, turn, hash FROM fresh
)
SELECT hash FROM fresh
"""
_KNOWN = """
SELECT hash, state, added_at FROM known
WHERE frontier = %s AND segment = %s AND hash = ANY(%b)
"""


class NewSeedRow(NamedTuple):
    """A seed about to be stored."""

    hash: bytes
    due: int
    max_retry: int
    body: bytes


class LocalFilters:
    """Bloom filters of keys seen by this process: a hit is probably a duplicate, a miss proves
    nothing.

    Other processes add to the same segments, so results are confirmed by the database.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._filters: OrderedDict[tuple[int, int], SegmentFilter] = OrderedDict()
        self.settings: dict[int, FilterSettings] = {}

    def met(self, frontier: int, segment: int, hashes: Sequence[bytes]) -> list[bytes]:
        """Return the hashes that are probably known, and remember all of them."""
        where = frontier, segment
        with self._lock:
            met = self._filters.get(where)
            if met is None:
                settings = self.settings.get(frontier, FilterSettings())
                met = self._filters[where] = SegmentFilter(settings)
                while len(self._filters) > self._most:
                    self._filters.popitem(last=False)
            self._filters.move_to_end(where)
            likely = met.maybe_seen(hashes)
            met.add(hashes)
        return likely

    def state(self, frontier: int, segment: int) -> FilterState | None:
        """Return the state of this process's filter."""
        with self._lock:
            bloom = self._filters.get((frontier, segment))
            return bloom.state() if bloom else None

    def drop(self, frontier: int, segment: int) -> None:
        """Remove the filter of a dropped segment."""
        with self._lock:
            self._filters.pop((frontier, segment), None)


def add(
    database: SeedDatabase,
    filters: LocalFilters,
    cursor: Cursor,
    frontier: int,
    seeds: Sequence[ResolvedSeed],
    now: int,
) -> list[AddResult]:
    """Store the seeds that are new; return one result for each."""
    segments: dict[int, list[int]] = {}
    for index, seed in enumerate(seeds):
        segments.setdefault(seed.segment, []).append(index)
    answers: dict[int, AddResult] = {}
    counts = {}
    for segment, places in sorted(segments.items()):
        mine = [seeds[index] for index in places]
        rows: dict[bytes, ResolvedSeed] = {}
        for seed in mine:
            rows.setdefault(seed.hash, seed)
        known = _store(filters, cursor, frontier, segment, rows, now)
        new = AddResult(True, now, State.INIT)
        again = AddResult(False, now, State.INIT)
        for index, seed in zip(places, mine, strict=True):
            answers[index] = known.get(seed.hash, new)
            known.setdefault(seed.hash, again)
        count = sum(answers[index].new for index in places)
        counts[segment] = SegmentCounts(added=count, pending=count, duplicates=len(mine) - count)
    for segment, changed in counts.items():
        database.book(cursor, frontier, segment, changed)
    return [answers[index] for index in range(len(seeds))]


def _store(
    filters: LocalFilters,
    cursor: Cursor,
    frontier: int,
    segment: int,
    seeds: dict[bytes, ResolvedSeed],
    now: int,
) -> dict[bytes, AddResult]:
    """Insert seeds; return results for those that were already stored."""
    likely = filters.met(frontier, segment, list(seeds))
    known = known_since(cursor, frontier, segment, likely)
    rows = [
        NewSeedRow(seed_hash, seed.due, seed.max_retry, pack_body(seed))
        for seed_hash, seed in seeds.items()
        if seed_hash not in known
    ]
    inserted = insert(cursor, frontier, segment, rows, now)
    there = [row.hash for row in rows if row.hash not in inserted]
    known |= known_since(cursor, frontier, segment, there)
    if len(known) + len(inserted) != len(seeds):
        # Forgotten between insert and query, so it is new after all.
        raise TryAgain
    return known


def known_since(
    cursor: Cursor, frontier: int, segment: int, hashes: Sequence[bytes]
) -> dict[bytes, AddResult]:
    """Return the result for each hash that the segment already has."""
    if not hashes:
        return {}
    cursor.execute(_KNOWN, [frontier, segment, list(hashes)])
    return {row[0]: AddResult(False, row[2], State(row[1])) for row in cursor.fetchall()}


def insert(
    cursor: Cursor, frontier: int, segment: int, rows: Sequence[NewSeedRow], now: int
) -> set[bytes]:
    """Insert and queue the seeds that the segment does not have, in this order; return their
    hashes.
    """
    if not rows:
        return set()
    cursor.execute(
        _INSERT,
        {
            "frontier": frontier,
            "segment": segment,
            "now": now,
            "hashes": [row.hash for row in rows],
            "most": [row.max_retry for row in rows],
            "due": [row.due for row in rows],
            "block": BLOCK,
            "bodies": [row.body for row in rows],
        },
    )
    return {row[0] for row in cursor.fetchall()}
