"""Insertion of seeds: checked by Bloom filter and lookup, then queued."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from apps.seeds.engine.seeds import ResolvedSeed, State
from apps.seeds.stores.base import AddResult
from apps.seeds.stores.bodies import pack_body
from apps.seeds.stores.rocks.layout import pack_status, place, read_status
from apps.seeds.stores.rocks.transaction import RocksFolder, StoreTransaction

# Bytes of a seed without its body: status, queue entry, keys.
SEED_BYTES: Final = 175


class NewSeedEntry(NamedTuple):
    """A seed about to be stored."""

    hash: bytes
    due: int
    max_retry: int
    body: bytes


def add(
    kernel: RocksFolder,
    change: StoreTransaction,
    frontier: int,
    seeds: Sequence[ResolvedSeed],
    now: int,
) -> list[AddResult]:
    """Store and queue the seeds that are new; return one result for each."""
    segments: dict[int, list[int]] = {}
    for index, seed in enumerate(seeds):
        segments.setdefault(seed.segment, []).append(index)
    answers: dict[int, AddResult] = {}
    for segment, places in segments.items():
        mine = [seeds[index] for index in places]
        known = known_since(kernel, frontier, segment, [seed.hash for seed in mine])
        answered, rows = [], []
        fresh = AddResult(True, now, State.INIT)
        again = AddResult(False, now, State.INIT)
        for seed in mine:
            answer = known.get(seed.hash)
            if answer is None:
                known[seed.hash] = again
                rows.append(NewSeedEntry(seed.hash, seed.due, seed.max_retry, pack_body(seed)))
                answer = fresh
            answered.append(answer)
        insert(kernel, change, frontier, segment, rows, now)
        change.ledger(frontier, segment).books.duplicates += len(mine) - len(rows)
        answers.update(zip(places, answered, strict=True))
    return [answers[index] for index in range(len(seeds))]


def known_since(
    kernel: RocksFolder, frontier: int, segment: int, hashes: Sequence[bytes]
) -> dict[bytes, AddResult]:
    """Return the result for each hash that the segment has; hits of the Bloom filter are looked
    up.
    """
    if segment not in kernel.ledgers.get(frontier, {}):
        return {}
    shelved = kernel.shelf.of(frontier, segment)
    asked = list(dict.fromkeys(hashes))
    if shelved.ready:
        asked = shelved.filter.maybe_seen(asked)
    return stored(kernel, place(frontier, segment), asked)


def stored(kernel: RocksFolder, where: bytes, asked: Sequence[bytes]) -> dict[bytes, AddResult]:
    """Return the result for each of ``asked`` that is stored."""
    found = kernel.get([b"s" + where + one for one in asked])
    known = {}
    for one, raw in zip(asked, found, strict=True):
        if raw is not None:
            status = read_status(raw)
            known[one] = AddResult(False, status.added_at, State(status.state))
    return known


def insert(
    kernel: RocksFolder,
    change: StoreTransaction,
    frontier: int,
    segment: int,
    rows: Sequence[NewSeedEntry],
    now: int,
) -> None:
    """Store and queue seeds that the segment does not have."""
    if not rows:
        return
    # Before the write: surplus keys in a filter are harmless, missing ones are not.
    shelved = kernel.shelf.of(frontier, segment)
    shelved.filter.add(row.hash for row in rows)
    shelved.saved = False
    where = place(frontier, segment)
    put = change.batch.put
    turn = kernel.next_turns(len(rows))
    ledger = change.ledger(frontier, segment)
    for row in rows:
        put(b"b" + where + row.hash, row.body)
        status = pack_status(State.INIT, 0, row.max_retry, 0, now, now, row.due, turn)
        change.push(where, row.hash, row.due, turn, status)
        ledger.size += SEED_BYTES + len(row.body)
        turn += 1
    ledger.mark = turn - 1
    ledger.books.added += len(rows)
    ledger.books.pending += len(rows)
