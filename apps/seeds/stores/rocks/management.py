"""Reopen, forget and drop stored seeds."""

from __future__ import annotations

from collections.abc import Sequence

from apps.seeds.engine.errors import SeedInUse, SeedNotFinal, UnknownSeed
from apps.seeds.engine.keys import key_hash
from apps.seeds.engine.seeds import FINAL, TIMELESS_DUE, State
from apps.seeds.engine.segments import segment_text
from apps.seeds.stores.base import SegmentCounts
from apps.seeds.stores.rocks.inserts import SEED_BYTES, NewSeedEntry, insert, known_since
from apps.seeds.stores.rocks.layout import (
    PLACE_END,
    Status,
    beyond,
    pack_status,
    pending_key,
    place,
    read_status,
)
from apps.seeds.stores.rocks.transaction import RocksFolder, StoreTransaction, move, next_states


def find(folder: RocksFolder, frontier: int, segment: int, key: str) -> tuple[bytes, Status]:
    """Return the hash of a key, and its status. Raises ``UnknownSeed``."""
    seed_hash = key_hash(key)
    raw = None
    if segment in folder.records.get(frontier, {}):
        raw = folder.get([b"s" + place(frontier, segment) + seed_hash])[0]
    if raw is None:
        raise UnknownSeed(f"segment {segment_text(segment)} has no key {key[:200]}")
    return seed_hash, read_status(raw)


def reopen(
    folder: RocksFolder, change: StoreTransaction, frontier: int, segment: int, key: str, now: int
) -> None:
    """Make a finished seed pending again."""
    seed_hash, status = find(folder, frontier, segment, key)
    if status.state not in FINAL:
        raise SeedNotFinal("the seed has not ended, it is pending or leased")
    _reopen(folder, change, frontier, segment, [(seed_hash, status)], now)


def _reopen(
    folder: RocksFolder,
    change: StoreTransaction,
    frontier: int,
    segment: int,
    seeds: Sequence[tuple[bytes, Status]],
    now: int,
) -> None:
    where = place(frontier, segment)
    record = change.record(frontier, segment)
    turn = folder.next_turns(len(seeds))
    for seed_hash, status in seeds:
        opened = status._replace(state=State.INIT, retry=0, changed_at=now, turn=turn)
        change.push(where, seed_hash, status.due, turn, pack_status(*opened))
        move(record, status.state, State.INIT)
        turn += 1


def forget(
    folder: RocksFolder, change: StoreTransaction, frontier: int, segment: int, key: str
) -> None:
    """Delete a seed that is not leased."""
    seed_hash, status = find(folder, frontier, segment, key)
    if status.state == State.RUNNING:
        raise SeedInUse("the seed is leased; it can be forgotten when that is over")
    where = place(frontier, segment)
    body = folder.get([b"b" + where + seed_hash])[0] or b""
    change.batch.delete(b"s" + where + seed_hash)
    change.batch.delete(b"b" + where + seed_hash)
    change.batch.delete(pending_key(where, status.due, status.turn))
    record = change.record(frontier, segment)
    record.size -= SEED_BYTES + len(body)
    record.books.forgotten += 1
    move(record, status.state, None)


def failed(
    folder: RocksFolder, frontier: int, segment: int, after: bytes, most: int
) -> tuple[list[tuple[bytes, Status]], bytes | None]:
    """Return the failed seeds among the next ``most`` after a hash, and the last hash read; None at
    the end.
    """
    entries = next_states(folder, place(frontier, segment), after, most)
    failures = []
    for key, raw in entries:
        status = read_status(raw)
        if status.state == State.FAILED:
            failures.append((key[PLACE_END:], status))
    return failures, entries[-1][0][PLACE_END:] if len(entries) == most else None


def reopen_slice(
    folder: RocksFolder,
    change: StoreTransaction,
    frontier: int,
    source: int,
    target: int,
    seeds: Sequence[tuple[bytes, Status]],
    now: int,
) -> int:
    """Add failed seeds of ``source`` to ``target`` as pending; return how many were new there."""
    if source == target:
        _reopen(folder, change, frontier, source, seeds, now)
        return len(seeds)
    known = known_since(folder, frontier, target, [seed_hash for seed_hash, _ in seeds])
    fresh = [(seed_hash, status) for seed_hash, status in seeds if seed_hash not in known]
    where = place(frontier, source)
    bodies = folder.get([b"b" + where + seed_hash for seed_hash, _ in fresh])
    rows = [
        NewSeedEntry(seed_hash, target or TIMELESS_DUE, status.max_retry, body)
        for (seed_hash, status), body in zip(fresh, bodies, strict=True)
        if body is not None
    ]
    insert(folder, change, frontier, target, rows, now)
    change.record(frontier, target).books.duplicates += len(seeds) - len(rows)
    return len(rows)


def drop(
    folder: RocksFolder, change: StoreTransaction, frontier: int, segment: int, leased_too: bool
) -> SegmentCounts:
    """Delete a segment with its leased seeds."""
    books = folder.known(frontier, segment).books
    if books.leased and not leased_too:
        raise SeedInUse(f"{books.leased} seeds of the segment are leased")
    where = place(frontier, segment)
    batch = change.batch
    for table in (b"s", b"b", b"p"):
        batch.delete_range(table + where, beyond(table + where))
    batch.delete(b"k" + where)
    if books.leased:
        for generation, grant in folder.grants.items():
            if grant.frontier == frontier:
                for key, _ in folder.leased(generation):
                    if key.startswith(where):
                        change.leave(generation)
    change.dropped = frontier, segment
    return books
