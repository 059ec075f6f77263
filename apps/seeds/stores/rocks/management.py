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


def find(kernel: RocksFolder, frontier: int, segment: int, key: str) -> tuple[bytes, Status]:
    """Return the hash of a key, and its status. Raises ``UnknownSeed``."""
    one = key_hash(key)
    raw = None
    if segment in kernel.ledgers.get(frontier, {}):
        raw = kernel.get([b"s" + place(frontier, segment) + one])[0]
    if raw is None:
        raise UnknownSeed(f"segment {segment_text(segment)} has no key {key[:200]}")
    return one, read_status(raw)


def reopen(
    kernel: RocksFolder, change: StoreTransaction, frontier: int, segment: int, key: str, now: int
) -> None:
    """Make a finished seed pending again."""
    one, status = find(kernel, frontier, segment, key)
    if status.state not in FINAL:
        raise SeedNotFinal("the seed has not ended, it is pending or leased")
    _reopen(kernel, change, frontier, segment, [(one, status)], now)


def _reopen(
    kernel: RocksFolder,
    change: StoreTransaction,
    frontier: int,
    segment: int,
    seeds: Sequence[tuple[bytes, Status]],
    now: int,
) -> None:
    where = place(frontier, segment)
    ledger = change.ledger(frontier, segment)
    turn = kernel.next_turns(len(seeds))
    for one, status in seeds:
        opened = status._replace(state=State.INIT, retry=0, changed_at=now, turn=turn)
        change.push(where, one, status.due, turn, pack_status(*opened))
        move(ledger, status.state, State.INIT)
        turn += 1


def forget(
    kernel: RocksFolder, change: StoreTransaction, frontier: int, segment: int, key: str
) -> None:
    """Delete a seed that is not leased."""
    one, status = find(kernel, frontier, segment, key)
    if status.state == State.RUNNING:
        raise SeedInUse("the seed is leased; it can be forgotten when that is over")
    where = place(frontier, segment)
    body = kernel.get([b"b" + where + one])[0] or b""
    change.batch.delete(b"s" + where + one)
    change.batch.delete(b"b" + where + one)
    change.batch.delete(pending_key(where, status.due, status.turn))
    ledger = change.ledger(frontier, segment)
    ledger.size -= SEED_BYTES + len(body)
    ledger.books.forgotten += 1
    move(ledger, status.state, None)


def failed(
    kernel: RocksFolder, frontier: int, segment: int, after: bytes, most: int
) -> tuple[list[tuple[bytes, Status]], bytes | None]:
    """Return the failed seeds among the next ``most`` after a hash, and the last hash read; None at
    the end.
    """
    entries = next_states(kernel, place(frontier, segment), after, most)
    found = []
    for key, raw in entries:
        status = read_status(raw)
        if status.state == State.FAILED:
            found.append((key[PLACE_END:], status))
    return found, entries[-1][0][PLACE_END:] if len(entries) == most else None


def reopen_slice(
    kernel: RocksFolder,
    change: StoreTransaction,
    frontier: int,
    source: int,
    target: int,
    seeds: Sequence[tuple[bytes, Status]],
    now: int,
) -> int:
    """Add failed seeds of ``source`` to ``target`` as pending; return how many were new there."""
    if source == target:
        _reopen(kernel, change, frontier, source, seeds, now)
        return len(seeds)
    known = known_since(kernel, frontier, target, [one for one, _ in seeds])
    fresh = [(one, status) for one, status in seeds if one not in known]
    where = place(frontier, source)
    bodies = kernel.get([b"b" + where + one for one, _ in fresh])
    rows = [
        NewSeedEntry(one, target or TIMELESS_DUE, status.max_retry, body)
        for (one, status), body in zip(fresh, bodies, strict=True)
        if body is not None
    ]
    insert(kernel, change, frontier, target, rows, now)
    change.ledger(frontier, target).books.duplicates += len(seeds) - len(rows)
    return len(rows)


def drop(
    kernel: RocksFolder, change: StoreTransaction, frontier: int, segment: int, leased_too: bool
) -> SegmentCounts:
    """Delete a segment with its leased seeds."""
    books = kernel.known(frontier, segment).books
    if books.leased and not leased_too:
        raise SeedInUse(f"{books.leased} seeds of the segment are leased")
    where = place(frontier, segment)
    batch = change.batch
    for table in (b"s", b"b", b"p"):
        batch.delete_range(table + where, beyond(table + where))
    batch.delete(b"k" + where)
    if books.leased:
        for generation, grant in kernel.grants.items():
            if grant.frontier == frontier:
                for key, _ in kernel.leased(generation):
                    if key.startswith(where):
                        change.leave(generation)
    change.dropped = frontier, segment
    return books
