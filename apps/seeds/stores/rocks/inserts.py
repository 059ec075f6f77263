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
    folder: RocksFolder,
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
        known = known_since(folder, frontier, segment, [seed.hash for seed in mine])
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
        insert(folder, change, frontier, segment, rows, now)
        change.record(frontier, segment).books.duplicates += len(mine) - len(rows)
        answers.update(zip(places, answered, strict=True))
    return [answers[index] for index in range(len(seeds))]


def known_since(
    folder: RocksFolder, frontier: int, segment: int, hashes: Sequence[bytes]
) -> dict[bytes, AddResult]:
    """Return the result for each hash that the segment has; hits of the Bloom filter are looked
    up.
    """
    if segment not in folder.records.get(frontier, {}):
        return {}
    shelved = folder.filters.of(frontier, segment)
    distinct = list(dict.fromkeys(hashes))
    if shelved.ready:
        distinct = shelved.filter.maybe_seen(distinct)
    return stored(folder, place(frontier, segment), distinct)


def stored(folder: RocksFolder, where: bytes, asked: Sequence[bytes]) -> dict[bytes, AddResult]:
    """Return the result for each of ``asked`` that is stored."""
    values = folder.get([b"s" + where + key_hash for key_hash in asked])
    known = {}
    for key_hash, raw in zip(asked, values, strict=True):
        if raw is not None:
            status = read_status(raw)
            known[key_hash] = AddResult(False, status.added_at, State(status.state))
    return known


def insert(
    folder: RocksFolder,
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
    shelved = folder.filters.of(frontier, segment)
    shelved.filter.add(row.hash for row in rows)
    shelved.saved = False
    where = place(frontier, segment)
    put = change.batch.put
    turn = folder.next_turns(len(rows))
    record = change.record(frontier, segment)
    for row in rows:
        put(b"b" + where + row.hash, row.body)
        status = pack_status(State.INIT, 0, row.max_retry, 0, now, now, row.due, turn)
        change.push(where, row.hash, row.due, turn, status)
        record.size += SEED_BYTES + len(row.body)
        turn += 1
    record.mark = turn - 1
    record.books.added += len(rows)
    record.books.pending += len(rows)
