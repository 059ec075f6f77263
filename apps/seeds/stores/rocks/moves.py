"""Read seeds in pages, restore exported seeds, and move seeds between segments."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from apps.seeds.engine.errors import SeedInUse
from apps.seeds.engine.keys import key_hash
from apps.seeds.engine.rules import NewPlace
from apps.seeds.engine.seeds import PENDING
from apps.seeds.engine.segments import segment_text
from apps.seeds.stores.base import (
    MAX_PAGE_BYTES,
    AddResult,
    Known,
    MovedSlice,
    Regroup,
    SegmentCounts,
    check_segment,
    pending_state,
    rest_of,
)
from apps.seeds.stores.bodies import pack_parts, unpack_body
from apps.seeds.stores.rocks.inserts import SEED_BYTES, stored
from apps.seeds.stores.rocks.layout import (
    PLACE_END,
    Status,
    beyond,
    pack_status,
    pending_key,
    place,
    read_status,
)
from apps.seeds.stores.rocks.transaction import RocksFolder, StoreTransaction, next_states
from apps.seeds.stores.rocks.transaction import move as book_move


class StoredSeedEntry(msgspec.Struct):
    """Seed that is restored or moved with its state."""

    hash: bytes
    status: Status
    body: bytes


def page(
    folder: RocksFolder, frontier: int, segment: int, after: bytes, limit: int
) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
    """Return status and body of the next seeds, and the last hash; None at the end."""
    where = place(frontier, segment)
    states = next_states(folder, where, after, limit)
    last = len(states) < limit
    entries: list[tuple[bytes, bytes]] = []
    size = 0
    for start in range(0, len(states), 100):
        some = states[start : start + 100]
        bodies = folder.get([b"b" + key[1:] for key, _ in some])
        for (key, raw), body in zip(some, bodies, strict=True):
            if body is None:
                continue
            if entries and size + len(body) > MAX_PAGE_BYTES:
                return entries, after
            size += len(body)
            entries.append((raw, body))
            after = key[PLACE_END:]
    return entries, None if last else after


def restore(
    folder: RocksFolder, change: StoreTransaction, frontier: int, seeds: Sequence[Known]
) -> list[AddResult]:
    """Store exported seeds that are new; return one result for each."""
    segments: dict[int, list[int]] = {}
    for index, seed in enumerate(seeds):
        check_segment(seed.segment)
        segments.setdefault(seed.segment, []).append(index)
    answers: dict[int, AddResult] = {}
    # Queue numbers follow the order of the call, across segments: a move may merge segments.
    first_turn = folder.next_turns(len(seeds))
    for segment, places in segments.items():
        hashes = [key_hash(seeds[index].key) for index in places]
        known = _known_since(folder, frontier, segment, hashes)
        rows = []
        for index, seed_hash in zip(places, hashes, strict=True):
            answer = known.get(seed_hash)
            if answer is None:
                seed = seeds[index]
                state = pending_state(seed)
                answers[index] = AddResult(True, seed.added_at, state)
                known[seed_hash] = AddResult(False, seed.added_at, state)
                times = seed.added_at, seed.changed_at, seed.due
                turn = first_turn + index
                status = Status(state, seed.retry, seed.max_retry, 0, *times, turn)
                rows.append(
                    StoredSeedEntry(seed_hash, status, pack_parts(seed.key, seed.data, seed.ext))
                )
            else:
                answers[index] = answer
        put(folder, change, frontier, segment, rows)
        change.record(frontier, segment).books.duplicates += len(places) - len(rows)
    return [answers[index] for index in range(len(seeds))]


def _known_since(
    folder: RocksFolder, frontier: int, segment: int, hashes: Sequence[bytes]
) -> dict[bytes, AddResult]:
    """Return the result for each hash that the segment has; uses its Bloom filter only if in
    memory.
    """
    if segment not in folder.records.get(frontier, {}):
        return {}
    shelved = folder.filters.in_memory(frontier, segment)
    distinct = list(dict.fromkeys(hashes))
    if shelved is not None and shelved.ready:
        distinct = shelved.filter.maybe_seen(distinct)
    return stored(folder, place(frontier, segment), distinct)


def put(
    folder: RocksFolder,
    change: StoreTransaction,
    frontier: int,
    segment: int,
    rows: Sequence[StoredSeedEntry],
) -> None:
    """Store seeds that the segment does not have."""
    if not rows:
        return
    # Before the write: surplus keys in a filter are harmless, missing ones are not. A filter that
    # is not in memory is rebuilt when needed: a move may fill more segments than filters fit in
    # memory.
    shelved = folder.filters.in_memory(frontier, segment)
    if shelved is not None:
        shelved.filter.add(row.hash for row in rows)
        shelved.saved = False
    where = place(frontier, segment)
    record = change.record(frontier, segment)
    for row in rows:
        status = row.status
        change.batch.put(b"b" + where + row.hash, row.body)
        if status.state in PENDING:
            change.push(where, row.hash, status.due, status.turn, pack_status(*status))
        else:
            change.batch.put(b"s" + where + row.hash, pack_status(*status))
        record.size += SEED_BYTES + len(row.body)
        book_move(record, None, status.state)
    record.books.added += len(rows)
    # Above the mark of any saved filter: the numbers of these seeds may be old.
    record.mark = folder.next_turns(1)


def move(
    folder: RocksFolder,
    change: StoreTransaction,
    frontier: int,
    segment: int,
    target: int,
    regroup: Regroup,
    after: bytes,
    limit: int,
) -> MovedSlice:
    """Move a slice of a segment to another frontier."""
    counts = folder.known(frontier, segment).books
    if counts.leased:
        raise SeedInUse(f"{counts.leased} seeds of segment {segment_text(segment)} are leased")
    where = place(frontier, segment)
    entries = next_states(folder, where, after, limit)
    if not entries:
        if counts.added > counts.forgotten:
            # Seeds were added behind the cursor meanwhile.
            return MovedSlice(0, 0, 0, b"")
        _close(change, frontier, segment, target, regroup, counts)
        return MovedSlice(0, 0, 0, None)
    bodies = folder.get([b"b" + key[1:] for key, _ in entries])
    source = change.record(frontier, segment)
    coming: dict[int, list[StoredSeedEntry]] = {}
    kept = 0
    for (entry, raw), body in zip(entries, bodies, strict=True):
        assert body is not None  # noqa: S101 - written with the status
        status = read_status(raw)
        key, data, ext = unpack_body(body)
        new = regroup(segment, key, data, status.due)
        kept += new.kept
        seed_hash = entry[PLACE_END:]
        if status.state in PENDING:
            change.batch.delete(pending_key(where, status.due, status.turn))
        change.batch.delete(entry)
        change.batch.delete(b"b" + entry[1:])
        source.size -= SEED_BYTES + len(body)
        source.books.added -= 1
        book_move(source, status.state, None)
        if new.key != key:
            seed_hash, body = key_hash(new.key), pack_parts(new.key, data, ext)
        row = StoredSeedEntry(seed_hash, status._replace(due=new.due), body)
        coming.setdefault(new.segment, []).append(row)
    met = 0
    for place_to, rows in coming.items():
        known = set(_known_since(folder, target, place_to, [row.hash for row in rows]))
        fresh = []
        for row in rows:
            if row.hash not in known:
                known.add(row.hash)
                fresh.append(row)
        put(folder, change, target, place_to, fresh)
        change.record(target, place_to).books.duplicates += len(rows) - len(fresh)
        met += len(rows) - len(fresh)
    return MovedSlice(len(entries) - met, met, kept, entries[-1][0][PLACE_END:])


def _close(
    change: StoreTransaction,
    frontier: int,
    segment: int,
    target: int,
    regroup: Regroup,
    counts: SegmentCounts,
) -> None:
    """Delete an emptied segment, and add its remaining counts to the new segment of its
    beginning.
    """
    where = place(frontier, segment)
    for table in (b"s", b"b", b"p"):
        change.batch.delete_range(table + where, beyond(table + where))
    change.batch.delete(b"k" + where)
    change.dropped = frontier, segment
    rest = rest_of(counts)
    if rest != SegmentCounts():
        record = change.record(target, home_of(segment, regroup).segment)
        record.books = record.books.plus(rest)


def home_of(segment: int, regroup: Regroup) -> NewPlace:
    """Return the new place of a seed that is due when the segment begins."""
    return regroup(segment, "", "home", segment)
