"""What every storage node promises: one test over all adapters."""

from __future__ import annotations

import pytest

from apps.requeststore.engine.errors import InvalidRequest, TooLarge
from apps.requeststore.engine.flags import EXPIRED, MOVING, NEW, TAKEN
from apps.requeststore.engine.limits import MAX_DATA_BYTES, MAX_ID, MAX_STEPS, MAX_TS
from apps.requeststore.stores.base import (
    Finish,
    GiveBack,
    NewRequest,
    QueueEntry,
    Shard,
    StorageNode,
)
from tests.requeststore.stores.calls import (
    CUTOFF,
    DEADLINE,
    NOW,
    SHARD,
    codes,
    finish,
    flags,
    give_back,
    new,
    one,
    reopen,
    store,
    story,
    take,
)

# --- storing --------------------------------------------------------------------------------


@pytest.mark.slow("2 s")
@pytest.mark.covers("S4.1", "S4.2", "S4.3", "S4.4", "S4.5", "S4.6")
def test_a_request_comes_back_as_it_was_stored(node: StorageNode) -> None:
    data = bytes(range(256)) * 3
    node.ensure(SHARD, delete_after_seconds=60)
    request = NewRequest(MAX_ID, "news", NOW, data, priority=7)
    assert node.insert(SHARD, [request], by="web-1", now=NOW + 5) == [True]
    found = one(node, MAX_ID)
    assert (found.id, found.biz, found.ts, found.data) == (MAX_ID, "news", NOW, data)
    assert (found.flag, found.priority, found.tries, found.owner) == (NEW, 7, 0, "")
    assert (found.queued_at, found.finished_at, found.deadline, found.result) == (0, 0, 0, b"")
    assert [(step.at, step.kind, step.by) for step in found.steps] == [(NOW + 5, "stored", "web-1")]


def test_an_id_is_stored_once(node: StorageNode) -> None:
    assert store(node, 1, 2, 1) == [True, True, False]
    again = [new(2, data=b"other"), new(3)]
    assert node.insert(SHARD, again, by="web", now=NOW) == [False, True]
    assert one(node, 2).data == b"d2"
    assert flags(node) == {NEW: 3}


def test_a_repeat_of_a_store_changes_nothing(node: StorageNode) -> None:
    store(node, 1)
    take(node, 1)
    assert store(node, 1) == [False]
    assert one(node, 1).flag == TAKEN


def test_smallest_and_largest_are_kept(node: StorageNode) -> None:
    node.ensure(SHARD, delete_after_seconds=60)
    requests = [NewRequest(0, "b", 0, b""), NewRequest(MAX_ID, "b" * 63, MAX_TS, b"\0\xff")]
    assert node.insert(SHARD, requests, by="", now=0) == [True, True]
    least, most = node.find(SHARD, [0, MAX_ID])
    assert least is not None
    assert most is not None
    assert (least.ts, least.data) == (0, b"")
    assert (most.ts, most.data, most.biz) == (MAX_TS, b"\0\xff", "b" * 63)


@pytest.mark.slow("2 s")
def test_more_than_one_portion_is_stored(node: StorageNode) -> None:
    # Fewer than what the MongoDB stand-in can bear, more data than a portion has.
    node.ensure(SHARD, delete_after_seconds=60)
    requests = [new(number, data=b"x" * 3_000_000) for number in range(6)]
    assert all(node.insert(SHARD, requests, by="web", now=NOW))
    assert len(one(node, 5).data) == 3_000_000
    assert codes(take(node, *range(6))) == ["taken"] * 6


def test_a_shard_that_is_not_there_is_empty(node: StorageNode) -> None:
    assert node.find(SHARD, [1]) == [None]
    assert codes(take(node, 1)) == ["unknown"]
    assert finish(node, 1) == give_back(node, 1) == ["unknown"]
    node.queued(SHARD, [1], by="web", now=NOW)
    assert node.page(SHARD, biz="news") == []
    assert node.orphans(SHARD, before=NOW, cutoff=0, limit=5) == []
    assert node.forgotten(SHARD, before=NOW, cutoff=0, limit=5) == []
    assert node.overdue(SHARD, now=NOW, cutoff=0, limit=5, by="sweep") == []
    assert flags(node) == {}
    assert node.oldest(SHARD, flag=NEW) is None
    assert node.expire(SHARD, cutoff=NOW, limit=5, by="sweep", now=NOW) == 0
    assert node.delete(SHARD, before=NOW, limit=5) == 0
    assert node.start_move(SHARD, [1], now=NOW) == [None]
    assert node.undo_move(SHARD, [1]) == node.end_move(SHARD, [1]) == 0
    assert reopen(node, 1) == [False]
    assert node.size(SHARD).requests == 0
    node.drop(SHARD)


def test_nothing_is_asked_of_an_empty_batch(node: StorageNode) -> None:
    store(node, 1)
    assert node.insert(SHARD, [], by="web", now=NOW) == []
    assert take(node) == []
    assert finish(node) == give_back(node) == []
    node.queued(SHARD, [], by="web", now=NOW)
    assert node.find(SHARD, []) == []
    assert node.end_move(SHARD, []) == 0
    assert node.receive(SHARD, [], by="mover", now=NOW) == 0


# --- what is refused ------------------------------------------------------------------------


@pytest.mark.slow("2 s")
@pytest.mark.parametrize(
    "bad",
    [
        NewRequest(-1, "news", NOW, b""),
        NewRequest(MAX_ID + 1, "news", NOW, b""),
        NewRequest(1.5, "news", NOW, b""),  # type: ignore[arg-type]  # on purpose
        NewRequest(True, "news", NOW, b""),
        NewRequest(1, "ne\0ws", NOW, b""),
        NewRequest(1, "ne\ud800ws", NOW, b""),
        NewRequest(1, "n" * 64, NOW, b""),
        NewRequest(1, "news", -1, b""),
        NewRequest(1, "news", MAX_TS + 1, b""),
        NewRequest(1, "news", NOW, "text"),  # type: ignore[arg-type]  # on purpose
        NewRequest(1, "news", NOW, b"", priority=10),
        NewRequest(1, "news", NOW, b"", priority=-1),
    ],
)
def test_a_bad_request_is_refused_with_all_of_its_batch(node: StorageNode, bad: NewRequest) -> None:
    node.ensure(SHARD, delete_after_seconds=60)
    with pytest.raises(InvalidRequest, match="request 1: "):
        node.insert(SHARD, [new(7), bad], by="web", now=NOW)
    assert flags(node) == {}


def test_data_that_is_too_large_is_refused(node: StorageNode) -> None:
    node.ensure(SHARD, delete_after_seconds=60)
    with pytest.raises(TooLarge):
        node.insert(SHARD, [new(1), new(2, data=b"x" * (MAX_DATA_BYTES + 1))], by="web", now=NOW)
    assert flags(node) == {}


def test_other_bad_words_are_refused(node: StorageNode) -> None:
    store(node, 1)
    with pytest.raises(InvalidRequest):
        node.take(SHARD, [QueueEntry(-5, "news", NOW)], owner="w", now=NOW, deadline=1, cutoff=0)
    with pytest.raises(InvalidRequest):
        take(node, 1, owner="")
    with pytest.raises(InvalidRequest):
        take(node, 1, owner="a\0b")
    with pytest.raises(InvalidRequest):
        take(node, 1, owner="w" * 201)
    with pytest.raises(InvalidRequest):
        take(node, 1, now=MAX_TS + 1)
    with pytest.raises(InvalidRequest, match="not after"):
        take(node, 1, now=NOW, deadline=NOW)
    take(node, 1)
    for flag in (NEW, TAKEN, EXPIRED, MOVING, 1000):
        with pytest.raises(InvalidRequest):
            finish(node, 1, flag=flag)
    with pytest.raises(InvalidRequest):
        node.finish(SHARD, [Finish(1, 1, 1, text="a\0b")], owner="w1", now=NOW)
    with pytest.raises(TooLarge):
        node.finish(SHARD, [Finish(1, 1, 1, b"x" * 70_000)], owner="w1", now=NOW)
    with pytest.raises(InvalidRequest):
        node.give_back(SHARD, [GiveBack(1, -1)], owner="w1", now=NOW)
    with pytest.raises(InvalidRequest):
        node.page(SHARD, biz="news", limit=0)
    with pytest.raises(InvalidRequest):
        node.ensure(Shard('a"; drop', "x"), delete_after_seconds=1)
    with pytest.raises(InvalidRequest):
        node.find(Shard("../up", "x"), [1])
    with pytest.raises(InvalidRequest):
        node.find(SHARD, list(range(10_001)))
    assert (one(node, 1).flag, len(one(node, 1).steps)) == (TAKEN, 2)


# --- taking ---------------------------------------------------------------------------------


@pytest.mark.covers("S4.20")
def test_who_takes_a_request_gets_all_of_it(node: StorageNode) -> None:
    store(node, 1, 2)
    node.queued(SHARD, [1, 2], by="web", now=NOW + 1)
    (taken,) = take(node, 1, now=NOW + 2)
    assert taken.code == "taken"
    got = taken.request
    assert got is not None
    assert (got.id, got.data, got.flag, got.tries, got.owner) == (1, b"d1", TAKEN, 1, "w1")
    assert (got.deadline, got.queued_at) == (DEADLINE, NOW + 1)
    assert [str(step.kind) for step in got.steps] == ["stored", "queued", "taken"]
    assert one(node, 1) == got
    assert flags(node) == {NEW: 1, TAKEN: 1}


def test_an_answer_comes_for_each_entry_in_its_order(node: StorageNode) -> None:
    store(node, *range(1, 9))
    take(node, 1)
    take(node, 2)
    finish(node, 2)
    store(node, 20, ts=CUTOFF)
    node.expire(SHARD, cutoff=CUTOFF, limit=9, by="sweep", now=NOW)
    store(node, 21, ts=CUTOFF)
    node.start_move(SHARD, [8], now=NOW)
    entries = [
        QueueEntry(21, "news", CUTOFF),
        QueueEntry(8, "news", NOW + 8),
        QueueEntry(20, "news", CUTOFF),
        QueueEntry(3, "other", NOW + 3),
        QueueEntry(4, "news", NOW),
        QueueEntry(5, "news", NOW + 5),
        QueueEntry(99, "news", NOW),
        QueueEntry(2, "news", NOW + 2),
        QueueEntry(1, "news", NOW + 1),
        QueueEntry(5, "news", NOW + 5),
    ]
    takes = node.take(SHARD, entries, owner="w2", now=NOW, deadline=DEADLINE, cutoff=CUTOFF)
    assert codes(takes) == [
        "expired",
        "busy",
        "expired",
        "unknown",
        "wrong_ts",
        "taken",
        "unknown",
        "done",
        "busy",
        "busy",
    ]
    assert [answer.request is not None for answer in takes] == [
        code == "taken" for code in codes(takes)
    ]


def test_one_whose_deadline_is_over_is_taken_by_the_next(node: StorageNode) -> None:
    store(node, 1)
    take(node, 1)
    assert codes(take(node, 1, owner="w2", now=DEADLINE - 1)) == ["busy"]
    (taken,) = take(node, 1, owner="w2", now=DEADLINE, deadline=DEADLINE + 5)
    assert taken.request is not None
    assert (taken.request.tries, taken.request.owner) == (2, "w2")
    assert finish(node, 1) == ["late"]
    assert finish(node, 1, tries=1, owner="w2") == ["late"]
    assert finish(node, 1, tries=2, owner="w2") == ["done"]


def test_nobody_takes_what_has_expired(node: StorageNode) -> None:
    store(node, 1)
    assert codes(take(node, 1, cutoff=NOW + 1)) == ["expired"]
    assert codes(take(node, 1, cutoff=NOW)) == ["taken"]


# --- ending ---------------------------------------------------------------------------------


@pytest.mark.covers("S4.6")
def test_its_owner_gives_a_request_its_last_flag(node: StorageNode) -> None:
    store(node, 1, 2)
    take(node, 1, 2)
    assert finish(node, 2, 1, now=NOW + 9) == ["done", "done"]
    found = one(node, 1)
    assert (found.flag, found.finished_at, found.result) == (1, NOW + 9, b'{"status":200}')
    assert (found.deadline, found.owner, found.data) == (0, "w1", b"d1")
    assert found.steps[-1].text == "fine"
    assert story(node, 1) == [("stored", "web"), ("taken", "w1"), ("finished", "w1")]


def test_a_repeat_of_an_end_says_so_and_changes_nothing(node: StorageNode) -> None:
    store(node, 1, 2)
    take(node, 1, 2)
    assert finish(node, 1, 1, now=NOW + 1) == ["done", "repeated"]
    assert finish(node, 1, now=NOW + 2) == ["repeated"]
    assert finish(node, 2, 1, now=NOW + 2) == ["done", "repeated"]
    assert one(node, 1).finished_at == NOW + 1
    assert len(one(node, 1).steps) == 3
    assert finish(node, 1, flag=5) == ["late"]
    assert give_back(node, 1) == ["late"]


def test_only_the_owner_at_that_try_ends_it(node: StorageNode) -> None:
    store(node, 1, 2)
    take(node, 1)
    assert finish(node, 1, owner="w2") == ["late"]
    assert finish(node, 1, tries=2) == ["late"]
    assert finish(node, 2) == give_back(node, 2) == ["late"]
    assert finish(node, 3) == give_back(node, 3) == ["unknown"]
    assert one(node, 1).flag == TAKEN


def test_what_is_given_back_can_be_taken_again(node: StorageNode) -> None:
    store(node, 1)
    node.queued(SHARD, [1], by="web", now=NOW)
    take(node, 1)
    assert give_back(node, 1) == ["done"]
    found = one(node, 1)
    assert (found.flag, found.queued_at, found.deadline, found.tries) == (NEW, 0, 0, 1)
    assert found.steps[-1].text == "no answer"
    assert give_back(node, 1) == ["repeated"]
    assert len(one(node, 1).steps) == 4
    assert finish(node, 1) == ["late"]
    assert codes(take(node, 1)) == ["taken"]
    assert give_back(node, 1, tries=1) == ["late"]
    assert finish(node, 1, tries=2) == ["done"]


def test_a_text_becomes_one_short_line(node: StorageNode) -> None:
    store(node, 1)
    take(node, 1)
    node.give_back(SHARD, [GiveBack(1, 1, "a\nb\x1b[31m " + "中" * 900)], owner="w1", now=NOW)
    text = one(node, 1).steps[-1].text
    assert "\n" not in text
    assert text.startswith("a b")
    assert len(text) <= 500


@pytest.mark.slow("3 s")
def test_a_story_stays_bounded_and_keeps_its_ends(node: StorageNode) -> None:
    store(node, 1)
    for turn in range(1, 60):
        node.queued(SHARD, [1], by="web", now=NOW + turn, again=turn > 1)
        assert codes(take(node, 1, now=NOW + turn)) == ["taken"]
        assert give_back(node, 1, tries=turn, now=NOW + turn) == ["done"]
    found = one(node, 1)
    assert len(found.steps) <= MAX_STEPS
    assert found.steps[0].kind == "stored"
    assert [str(step.kind) for step in found.steps[-3:]] == ["requeued", "taken", "returned"]
    assert found.steps[-1].at == NOW + 59
