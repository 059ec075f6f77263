"""What every storage node promises: its sweeps, looks, counts and moves."""

from __future__ import annotations

import msgspec
import pytest

from apps.requeststore.engine.errors import InvalidRequest
from apps.requeststore.engine.flags import EXPIRED, MOVING, NEW, TAKEN
from apps.requeststore.stores.base import QueueEntry, Shard, StorageNode, StoredRequest
from tests.requeststore.stores.calls import (
    CUTOFF,
    DEADLINE,
    MINUTE,
    NOW,
    PREFIX,
    SHARD,
    codes,
    finish,
    flags,
    give_back,
    new,
    one,
    page_ids,
    reopen,
    store,
    story,
    take,
)

OTHER = Shard(SHARD.database, "requests_001")


# --- the sweep ------------------------------------------------------------------------------


@pytest.mark.slow("1 s")
@pytest.mark.covers("S4.23")
def test_orphans_are_those_in_no_queue(node: StorageNode) -> None:
    store(node, *range(1, 6))
    node.queued(SHARD, [1], by="web", now=NOW)
    take(node, 2)
    found = node.orphans(SHARD, before=NOW + 4, cutoff=CUTOFF, limit=10)
    assert found == [QueueEntry(3, "news", NOW + 3), QueueEntry(4, "news", NOW + 4)]
    assert len(node.orphans(SHARD, before=NOW + 4, cutoff=CUTOFF, limit=1)) == 1
    assert node.orphans(SHARD, before=NOW + 4, cutoff=NOW + 3, limit=10) == found[1:]
    node.queued(SHARD, [3, 4, 77], by="sweep", now=NOW, again=True)
    assert node.orphans(SHARD, before=NOW + 4, cutoff=CUTOFF, limit=10) == []
    assert story(node, 3)[-1] == ("requeued", "sweep")


@pytest.mark.covers("S4.22")
def test_forgotten_are_those_queued_long_ago(node: StorageNode) -> None:
    store(node, 1, 2, 3, 4)
    node.queued(SHARD, [2], by="web", now=NOW + 5)
    node.queued(SHARD, [1], by="web", now=NOW + 6)
    node.queued(SHARD, [3], by="web", now=NOW + 7)
    found = node.forgotten(SHARD, before=NOW + 6, cutoff=CUTOFF, limit=10)
    assert [entry.id for entry in found] == [2, 1]
    assert len(node.forgotten(SHARD, before=NOW + 6, cutoff=CUTOFF, limit=1)) == 1
    node.queued(SHARD, [1, 2], by="sweep", now=NOW + 8, again=True)
    assert node.forgotten(SHARD, before=NOW + 6, cutoff=CUTOFF, limit=10) == []
    take(node, 3)
    assert node.forgotten(SHARD, before=NOW + 7, cutoff=CUTOFF, limit=10) == []


def test_a_note_that_comes_twice_is_one_step(node: StorageNode) -> None:
    store(node, 1)
    node.queued(SHARD, [1, 1], by="web", now=NOW)
    node.queued(SHARD, [1], by="web", now=NOW)
    assert story(node, 1) == [("stored", "web"), ("queued", "web")]


@pytest.mark.covers("S4.22")
def test_overdue_ones_are_new_again(node: StorageNode) -> None:
    store(node, 1, 2, 3, 4)
    store(node, 9, ts=CUTOFF)
    node.queued(SHARD, [1, 2, 3], by="web", now=NOW)
    take(node, 1, 2)
    take(node, 3, deadline=DEADLINE + 1)
    take(node, 9, ts=CUTOFF, cutoff=0)
    first = node.overdue(SHARD, now=DEADLINE, cutoff=CUTOFF, limit=1, by="sweep")
    rest = node.overdue(SHARD, now=DEADLINE, cutoff=CUTOFF, limit=9, by="sweep")
    assert len(first) == len(rest) == 1
    assert {found.id for found in first + rest} == {1, 2}
    assert {(found.owner, found.tries, found.data) for found in first + rest} == {("w1", 1, b"")}
    found = one(node, 1)
    assert (found.flag, found.queued_at, found.deadline, found.data) == (NEW, 0, 0, b"d1")
    assert story(node, 1)[-1] == ("overdue", "sweep")
    assert finish(node, 1) == give_back(node, 1) == ["late"]
    assert node.overdue(SHARD, now=DEADLINE, cutoff=CUTOFF, limit=9, by="sweep") == []
    assert codes(take(node, 1)) == ["taken"]


@pytest.mark.covers("S4.22")
def test_what_nobody_processed_in_time_is_marked_and_counted(node: StorageNode) -> None:
    store(node, 1, 2, 3, 4, 5)
    take(node, 2, 3)
    finish(node, 3)
    marked = [
        node.expire(SHARD, cutoff=NOW + 4, limit=2, by="sweep", now=NOW + MINUTE) for _ in range(3)
    ]
    assert marked == [2, 1, 0]
    assert flags(node) == {NEW: 1, 1: 1, EXPIRED: 3}
    assert one(node, 2).finished_at == NOW + MINUTE
    assert story(node, 2)[-1] == ("expired", "sweep")
    assert finish(node, 2) == give_back(node, 2) == ["late"]
    assert codes(take(node, 1, 2)) == ["expired", "expired"]


@pytest.mark.covers("S4.16")
def test_only_final_ones_are_deleted(node: StorageNode) -> None:
    store(node, *range(1, 8))
    take(node, 1, 2, 3)
    finish(node, 1)
    finish(node, 2, flag=7)
    store(node, 20, ts=CUTOFF)
    node.expire(SHARD, cutoff=CUTOFF, limit=9, by="sweep", now=NOW)
    assert node.delete(SHARD, before=NOW + 2, limit=9) == 2
    assert node.find(SHARD, [1, 20]) == [None, None]
    assert one(node, 2).flag == 7
    assert node.delete(SHARD, before=NOW + 100, limit=9) == 1
    assert flags(node) == {NEW: 4, TAKEN: 1}
    assert store(node, 1) == [True]


def test_deletes_are_limited(node: StorageNode) -> None:
    store(node, *range(1, 8))
    take(node, *range(1, 8))
    finish(node, *range(1, 6))
    finish(node, 6, 7, flag=3)
    deleted = [node.delete(SHARD, before=NOW + 100, limit=3) for _ in range(4)]
    assert deleted == [3, 3, 1, 0]


# --- looking --------------------------------------------------------------------------------


@pytest.mark.covers("S4.29")
def test_requests_are_found_in_the_order_of_the_ids(node: StorageNode) -> None:
    store(node, 1, 2, 3)
    found = node.find(SHARD, [3, 99, 1, 3])
    assert [request and request.id for request in found] == [3, None, 1, 3]


@pytest.mark.covers("S4.29")
def test_a_page_is_newest_first(node: StorageNode) -> None:
    store(node, *range(1, 8))
    store(node, 50, 51, ts=NOW + 4)
    take(node, 2, 4, 6)
    finish(node, 6)
    node.insert(SHARD, [new(60, NOW + 9, biz="other")], by="web", now=NOW)
    everything = [7, 6, 5, 51, 50, 4, 3, 2, 1]
    assert page_ids(node) == everything
    assert page_ids(node, flag=NEW) == [7, 5, 51, 50, 3, 1]
    assert page_ids(node, flag=TAKEN) == [4, 2]
    assert page_ids(node, flag=9) == []
    assert page_ids(node, since=NOW + 3, until=NOW + 5) == [51, 50, 4, 3]
    walked: list[int] = []
    after: tuple[int, int] | None = None
    while True:
        some = node.page(SHARD, biz="news", after=after, limit=2)
        if not some:
            break
        walked += [request.id for request in some]
        after = (some[-1].ts, some[-1].id)
    assert walked == everything
    (first,) = node.page(SHARD, biz="news", limit=1)
    assert (first.data, first.steps, first.ts) == (b"", [], NOW + 7)


@pytest.mark.covers("S4.26")
def test_counts_by_flag_are_the_books(node: StorageNode) -> None:
    store(node, *range(1, 11))
    take(node, 1, 2, 3, 4)
    finish(node, 1)
    finish(node, 2, flag=9)
    node.expire(SHARD, cutoff=NOW + 3, limit=9, by="sweep", now=NOW)
    node.start_move(SHARD, [10], now=NOW)
    counts = node.count(SHARD)
    assert dict(counts.by_flag) == {NEW: 5, TAKEN: 1, EXPIRED: 1, MOVING: 1, 1: 1, 9: 1}
    assert (counts.total, counts.of(NEW), counts.of(500)) == (10, 5, 0)
    assert dict(node.count(SHARD, since=NOW + 2, until=NOW + 5).by_flag) == {
        9: 1,
        EXPIRED: 1,
        TAKEN: 1,
    }
    assert node.oldest(SHARD, flag=NEW) == NOW + 5
    assert node.oldest(SHARD, flag=300) is None


@pytest.mark.covers("S4.26")
def test_a_node_tells_how_it_is(node: StorageNode) -> None:
    store(node, 1, 2, 3)
    size = node.size(SHARD)
    assert size.requests == 3
    assert size.bytes > 0
    health = node.health()
    assert health.kind
    assert health.version


# --- moving ---------------------------------------------------------------------------------


@pytest.mark.covers("S4.14")
def test_requests_move_to_another_shard(node: StorageNode) -> None:
    store(node, *range(1, 7))
    take(node, 1, 2)
    finish(node, 2)
    node.queued(SHARD, [3], by="web", now=NOW)
    before = {found.id: found for found in node.find(SHARD, list(range(1, 7))) if found}
    answers = node.start_move(SHARD, [4, 1, 2, 99, 3], now=NOW)
    assert [found and found.id for found in answers] == [4, None, 2, None, 3]
    moving = [found for found in answers if found]
    assert moving == [before[found.id] for found in moving]
    assert flags(node) == {TAKEN: 1, MOVING: 3, NEW: 2}
    assert codes(take(node, 3)) == ["busy"]
    # The mover died: another one begins again.
    assert node.start_move(SHARD, [2, 3, 2], now=NOW) == [before[2], before[3], before[2]]
    node.ensure(OTHER, delete_after_seconds=60)
    assert node.receive(OTHER, moving, by="mover", now=NOW + 1) == 3
    assert node.receive(OTHER, moving, by="mover", now=NOW + 2) == 0
    assert node.end_move(SHARD, [1, 2, 3, 4, 5, 99]) == 3
    assert node.end_move(SHARD, [2, 3]) == 0
    (found,) = node.find(OTHER, [2])
    assert found is not None
    step = found.steps[-1]
    assert (step.at, step.kind, step.by) == (NOW + 1, "moved", "mover")
    assert msgspec.structs.replace(found, steps=found.steps[:-1]) == before[2]
    assert flags(node) == {TAKEN: 1, NEW: 2}
    assert dict(node.count(OTHER).by_flag) == {NEW: 2, 1: 1}


def test_what_is_there_stays_when_it_comes_again(node: StorageNode) -> None:
    store(node, 1)
    request = StoredRequest(id=1, biz="news", ts=5, flag=1, data=b"other")
    assert node.receive(SHARD, [request], by="mover", now=NOW) == 0
    assert (one(node, 1).flag, one(node, 1).data) == (NEW, b"d1")
    moving = msgspec.structs.replace(request, id=2, flag=MOVING)
    with pytest.raises(InvalidRequest):
        node.receive(SHARD, [moving], by="mover", now=NOW)


def test_nobody_changes_what_is_moving(node: StorageNode) -> None:
    store(node, 1)
    take(node, 1)
    give_back(node, 1)
    node.start_move(SHARD, [1], now=NOW)
    assert finish(node, 1) == give_back(node, 1) == ["late"]
    node.queued(SHARD, [1], by="web", now=NOW)
    assert node.expire(SHARD, cutoff=NOW + 9, limit=9, by="sweep", now=NOW) == 0
    assert node.delete(SHARD, before=NOW + 9, limit=9) == 0
    assert node.orphans(SHARD, before=NOW + 9, cutoff=0, limit=9) == []
    assert (one(node, 1).flag, one(node, 1).queued_at) == (MOVING, 0)


def test_what_was_to_move_can_stay(node: StorageNode) -> None:
    store(node, 1, 2, 3)
    take(node, 1)
    finish(node, 1)
    before = one(node, 1)
    node.start_move(SHARD, [1, 2], now=NOW)
    assert node.undo_move(SHARD, [1, 3, 99]) == 1
    assert one(node, 1) == before
    assert flags(node) == {NEW: 1, MOVING: 1, 1: 1}
    assert node.undo_move(SHARD, [1]) == 0


# --- opening again --------------------------------------------------------------------------


def test_ended_ones_are_opened_again(node: StorageNode) -> None:
    store(node, 1, 2, 3, 4)
    store(node, 9, ts=CUTOFF)
    node.queued(SHARD, [1], by="web", now=NOW)
    take(node, 1, 2, 3)
    take(node, 9, ts=CUTOFF, cutoff=0)
    finish(node, 1, 9, flag=2)
    finish(node, 2, flag=1)
    asked = [9, 1, 2, 3, 4, 1, 77]
    assert reopen(node, *asked, flags=[2]) == [False, True, False, False, False, False, False]
    assert reopen(node, 1, flags=[2]) == [False]
    found = one(node, 1)
    assert (found.flag, found.tries, found.queued_at, found.result) == (NEW, 0, 0, b"")
    assert (found.owner, found.finished_at, found.data) == ("", 0, b"d1")
    assert story(node, 1)[-1] == ("reopened", "ops")
    assert finish(node, 1) == give_back(node, 1) == ["late"]
    assert codes(take(node, 1)) == ["taken"]
    assert reopen(node, 2, flags=[]) == reopen(node, 3, flags=[TAKEN, NEW]) == [False]


# --- shards ---------------------------------------------------------------------------------


@pytest.mark.covers("S4.11")
def test_shards_are_known_by_their_prefix_and_go_alone(node: StorageNode) -> None:
    store(node, 1)
    store(node, 2, shard=OTHER)
    third = Shard(f"{PREFIX}ing", "requests_000")
    store(node, 3, shard=third)
    assert sorted(node.shards(PREFIX), key=str) == sorted([SHARD, OTHER, third], key=str)
    assert node.shards(f"{PREFIX}i") == [third]
    assert node.shards("crawlyard%") == []
    node.drop(SHARD)
    node.drop(SHARD)
    assert sorted(node.shards(f"{PREFIX}_"), key=str) == [OTHER]
    assert node.find(OTHER, [2]) != [None]
    assert flags(node) == {}
    assert store(node, 1) == [True]


def test_a_shard_is_made_again_after_another_process_dropped_it(open_node: object) -> None:
    first, second = open_node(), open_node()  # type: ignore[operator]  # a fixture
    store(first, 1)
    assert store(second, 1) == [False]
    first.drop(SHARD)
    assert second.insert(SHARD, [new(5)], by="web", now=NOW) == [True]
    assert flags(second) == {NEW: 1}
