"""Lease, finish, return and expire seeds."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from apps.seeds.engine.keys import HASH_BYTES, key_hash
from apps.seeds.engine.seeds import Outcome, State, after
from apps.seeds.stores.base import MAX_BATCH, Finish, Finished, Lease, refusal
from apps.seeds.stores.bodies import unpack_body
from apps.seeds.stores.rocks.layout import (
    PLACE,
    Grant,
    Status,
    due_until,
    pack_status,
    place,
    read_status,
)
from apps.seeds.stores.rocks.transaction import RocksFolder, StoreTransaction, move, pending_scan
from yardkit.protocol import LeasedSeed


def lease(
    folder: RocksFolder,
    change: StoreTransaction,
    frontier: int,
    owner: str,
    limit: int,
    deadline: int,
    now: int,
    call: str,
) -> Lease:
    """Lease up to ``limit`` due seeds, the oldest segments first."""
    generation = folder.next_generation()
    seeds: list[LeasedSeed] = []
    members: list[bytes] = []
    for segment, record in sorted(folder.records.get(frontier, {}).items()):
        if segment > now or len(seeds) == limit:
            break
        if record.books.pending:
            most = limit - len(seeds)
            seeds += _take(folder, change, frontier, segment, generation, most, now, members)
    if seeds:
        grant = Grant(frontier, owner, deadline, b"".join(members), len(seeds), call)
        change.grant(generation, grant)
    return Lease(generation, owner, deadline, seeds)


def recall(folder: RocksFolder, frontier: int, owner: str, call: str) -> Lease | None:
    """Return the lease already granted to this call, as far as it is still held."""
    wanted = frontier, owner, call
    matching = (
        (generation, grant.deadline)
        for generation, grant in folder.grants.items()
        if (grant.frontier, grant.owner, grant.call) == wanted
    )
    generation, deadline = next(matching, (0, 0))
    if not generation:
        return None
    members = sorted(folder.leased(generation), key=_turn_of)
    bodies = folder.get([b"b" + member for member, _ in members])
    seeds = []
    for (member, status), body in zip(members, bodies, strict=True):
        assert body is not None  # noqa: S101 - written with the status
        key, data, ext = unpack_body(body)
        segment = PLACE.unpack_from(member)[1]
        seeds.append(LeasedSeed(segment, key, data, status.retry, status.max_retry, ext))
    return Lease(generation, owner, deadline, seeds)


def _take(
    folder: RocksFolder,
    change: StoreTransaction,
    frontier: int,
    segment: int,
    generation: int,
    most: int,
    now: int,
    members: list[bytes],
) -> list[LeasedSeed]:
    """Lease the first ``most`` due seeds of a segment, and append them to ``members``."""
    where = place(frontier, segment)
    entries = list(islice(pending_scan(folder, where, due_until(where, now)), most))
    if not entries:
        return []
    keys = [where + value[:HASH_BYTES] for _, value in entries]
    bodies = folder.get([b"b" + key for key in keys])
    put, delete = change.batch.put, change.batch.delete
    seeds = []
    for (entry, value), seed_hash, body in zip(entries, keys, bodies, strict=True):
        assert body is not None  # noqa: S101 - written with the entry
        _, retry, limit, _, added_at, _, due, turn = read_status(value[HASH_BYTES:])
        delete(entry)
        leased = pack_status(State.RUNNING, retry, limit, generation, added_at, now, due, turn)
        put(b"s" + seed_hash, leased)
        key, data, ext = unpack_body(body)
        seeds.append(LeasedSeed(segment, key, data, retry, limit, ext))
    members += keys
    change.taken[where] = entries[-1][0] + b"\0"
    change.record(frontier, segment).books.move(State.INIT, State.RUNNING, len(seeds))
    return seeds


def finish(
    folder: RocksFolder,
    change: StoreTransaction,
    frontier: int,
    finishes: Sequence[Finish],
    owner: str,
    now: int,
) -> list[Finished]:
    """Finish seeds as if they were given one after another; return one result for each."""
    places = {
        segment: place(frontier, segment)
        for segment in {answer_to.segment for answer_to in finishes}
        if segment in folder.records.get(frontier, {})
    }
    keys = [places.get(answer_to.segment, b"") + key_hash(answer_to.key) for answer_to in finishes]
    values = folder.get([b"s" + key for key in keys])
    statuses = {
        key: read_status(raw) for key, raw in zip(keys, values, strict=True) if raw is not None
    }
    answers = []
    for answer_to, key in zip(finishes, keys, strict=True):
        status = statuses.get(key)
        if status is None:
            answers.append(Finished("unknown_key", None))
            continue
        grant = folder.grants.get(answer_to.generation)
        refused = refusal(
            answer_to.generation,
            owner,
            state=status.state,
            generation=status.generation,
            holder=None if grant is None else grant.owner,
        )
        if refused:
            if refused == "late":
                change.record(frontier, answer_to.segment).books.late += 1
            answers.append(Finished(refused, State(status.state)))
            continue
        ended = end_lease(
            folder, change, frontier, answer_to.segment, key, status, answer_to.outcome, now
        )
        statuses[key] = ended
        code = "retried" if ended.state == State.RETRY else "finished"
        answers.append(Finished(code, State(ended.state)))
    return answers


def end_lease(
    folder: RocksFolder,
    change: StoreTransaction,
    frontier: int,
    segment: int,
    key: bytes,
    status: Status,
    outcome: Outcome,
    now: int,
) -> Status:
    """Set the state of a leased seed to finished or pending. ``key``: frontier, segment, hash."""
    state, retry = after(outcome, status.retry, status.max_retry)
    where, key_hash = key[: PLACE.size], key[PLACE.size :]
    turn = status.turn
    record = change.record(frontier, segment)
    if state == State.RETRY:
        turn = folder.next_turns(1)
        record.books.retried += 1
    _, _, most, generation, added_at, _, due, _ = status
    ended = Status(state, retry, most, generation, added_at, now, due, turn)
    raw = pack_status(*ended)
    if state == State.RETRY:
        change.push(where, key_hash, due, turn, raw)
    else:
        change.batch.put(b"s" + key, raw)
    change.leave(generation)
    move(record, State.RUNNING, state)
    return ended


def give_back(
    folder: RocksFolder,
    change: StoreTransaction,
    frontier: int,
    generation: int,
    owner: str,
    now: int,
) -> int:
    """Return all leased seeds of a lease to pending, at their old place in the queue."""
    folder.held(frontier, generation, owner)
    count = 0
    for key, status in folder.leased(generation):
        where, key_hash = key[: PLACE.size], key[PLACE.size :]
        state = State.RETRY if status.retry else State.INIT
        back = status._replace(state=state, changed_at=now)
        change.push(where, key_hash, status.due, status.turn, pack_status(*back))
        change.leave(generation)
        move(change.record(*PLACE.unpack(where)), State.RUNNING, state)
        count += 1
    return count


def expire(folder: RocksFolder, change: StoreTransaction, now: int) -> int:
    """Expire overdue leases, about ``MAX_BATCH`` seeds; each seed counts a failed try."""
    count = 0
    for generation, grant in list(folder.grants.items()):
        if grant.deadline > now:
            continue
        in_turn = sorted(folder.leased(generation), key=_turn_of)
        for key, status in in_turn:
            frontier, segment = PLACE.unpack_from(key)
            end_lease(folder, change, frontier, segment, key, status, Outcome.FAILURE, now)
            change.record(frontier, segment).books.expired += 1
            count += 1
        if count >= MAX_BATCH:
            break
    return count


def _turn_of(member: tuple[bytes, Status]) -> tuple[bytes, int, int]:
    key, status = member
    return key[: PLACE.size], status.due, status.turn
