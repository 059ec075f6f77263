"""What both stores promise of looking things up, opening again, forgetting and dropping."""

from __future__ import annotations

import pytest

from apps.seeds.engine.errors import BadCall, SeedInUse, SeedNotFinal, UnknownSeed, UnknownSegment
from apps.seeds.engine.seeds import DEFAULT_SEGMENT, Outcome, State
from apps.seeds.stores.base import Known, ReopenedCount, SeedStore
from tests.seeds.stores.calls import (
    DAY,
    FRONTIER,
    NOW,
    TODAY,
    add,
    books,
    codes,
    finish,
    keys,
    lease,
    reopen_failed,
)


def test_all_that_is_known_of_a_key_can_be_looked_up(store: SeedStore) -> None:
    add(store, "a", active_at=NOW, ext={"x": 1})
    taken = lease(store, now=NOW + 10)
    finish(store, taken, Outcome.GIVEN_UP, now=NOW + 20)
    assert store.lookup(FRONTIER, TODAY, "a") == Known(
        segment=TODAY,
        key="a",
        data="a",
        state=State.FAILED,
        retry=1,
        max_retry=3,
        added_at=NOW,
        changed_at=NOW + 20,
        due=NOW,
        generation=taken.generation,
        ext={"x": 1},
    )
    for segment, key in ((TODAY, "b"), (TODAY + DAY, "a"), (DEFAULT_SEGMENT, "a"), (-1, "a")):
        assert store.lookup(FRONTIER, segment, key) is None
    assert store.lookup(2, TODAY, "a") is None
    assert store.lookup(FRONTIER, TODAY, "\ud800") is None


def test_an_ended_seed_can_be_opened_again(store: SeedStore) -> None:
    add(store, "a", max_retry=1)
    with pytest.raises(SeedNotFinal):
        store.reopen(FRONTIER, DEFAULT_SEGMENT, "a", now=NOW)
    first = lease(store)
    with pytest.raises(SeedNotFinal):
        store.reopen(FRONTIER, DEFAULT_SEGMENT, "a", now=NOW)
    finish(store, first, Outcome.FAILURE)
    store.reopen(FRONTIER, DEFAULT_SEGMENT, "a", now=NOW)
    assert books(store).failed == 0
    # Whoever had it before cannot end it now.
    assert codes(finish(store, first)) == ["late"]
    second = lease(store)
    assert second.seeds[0].retry == 0
    assert codes(finish(store, second)) == ["finished"]
    assert (books(store).added, books(store).succeeded) == (1, 1)
    with pytest.raises(UnknownSeed, match="has no key b"):
        store.reopen(FRONTIER, DEFAULT_SEGMENT, "b", now=NOW)
    with pytest.raises(UnknownSeed):
        store.reopen(FRONTIER, -1, "a", now=NOW)


def test_a_forgotten_key_is_new_again(store: SeedStore) -> None:
    add(store, "a", "b")
    store.forget(FRONTIER, DEFAULT_SEGMENT, "a", now=NOW)
    assert store.lookup(FRONTIER, DEFAULT_SEGMENT, "a") is None
    assert (books(store).added, books(store).forgotten, books(store).pending) == (2, 1, 1)
    taken = lease(store)
    assert keys(taken) == ["b"]
    with pytest.raises(SeedInUse):
        store.forget(FRONTIER, DEFAULT_SEGMENT, "b", now=NOW)
    finish(store, taken)
    store.forget(FRONTIER, DEFAULT_SEGMENT, "b", now=NOW)
    assert codes(finish(store, taken)) == ["unknown_key"]
    assert add(store, "b", "a") == [True, True]
    again = lease(store)
    assert keys(again) == ["b", "a"]
    # The lease of its first life is not one of its second.
    assert codes(finish(store, taken)) == ["late"]
    with pytest.raises(UnknownSeed):
        store.forget(FRONTIER, TODAY, "a", now=NOW)


def failed(store: SeedStore, *names: str) -> None:
    """Seeds of yesterday that have failed."""
    add(store, *names, active_at=NOW - DAY)
    finish(store, lease(store), Outcome.GIVEN_UP)


def test_failed_seeds_can_be_opened_in_another_segment(store: SeedStore) -> None:
    failed(store, "a", "b", "c")
    add(store, "ok", active_at=NOW - DAY)
    finish(store, lease(store))
    add(store, "b", active_at=NOW)
    done = reopen_failed(store, TODAY - DAY, TODAY)
    assert done == ReopenedCount(reopened=2, duplicates=1)
    assert reopen_failed(store, TODAY - DAY, TODAY) == ReopenedCount(0, 3)
    assert books(store, TODAY - DAY).failed == 3
    assert (books(store, TODAY).added, books(store, TODAY).duplicates) == (3, 4)
    assert sorted(keys(lease(store))) == ["a", "b", "c"]


def test_failed_seeds_can_be_opened_where_they_are(store: SeedStore) -> None:
    failed(store, "a", "b")
    yesterday = TODAY - DAY
    assert reopen_failed(store, yesterday, yesterday) == ReopenedCount(2, 0)
    assert reopen_failed(store, yesterday, yesterday) == ReopenedCount(0, 0)
    assert (books(store, yesterday).pending, books(store, yesterday).failed) == (2, 0)
    assert [one.retry for one in lease(store).seeds] == [0, 0]
    with pytest.raises(UnknownSegment):
        reopen_failed(store, TODAY, TODAY)
    with pytest.raises(BadCall):
        reopen_failed(store, yesterday, -1)


def test_failed_seeds_opened_for_tomorrow_wait_until_then(store: SeedStore) -> None:
    failed(store, "a")
    tomorrow = TODAY + DAY
    reopen_failed(store, TODAY - DAY, tomorrow)
    assert keys(lease(store)) == []
    assert store.next_due(FRONTIER, now=NOW) == tomorrow
    assert keys(lease(store, now=tomorrow)) == ["a"]


def test_many_failed_seeds_are_opened_in_slices(store: SeedStore) -> None:
    names = [f"k{number}" for number in range(4500)]
    failed(store, *names[:100])
    add(store, *names[100:], active_at=NOW - DAY)
    finish(store, lease(store, 10_000), Outcome.GIVEN_UP)
    done = reopen_failed(store, TODAY - DAY, TODAY)
    assert done == ReopenedCount(4500, 0)
    assert sorted(keys(lease(store, 10_000))) == sorted(names)


def test_a_dropped_segment_is_gone(store: SeedStore) -> None:
    add(store, "a", "b", active_at=NOW - DAY)
    add(store, "a", active_at=NOW)
    finish(store, lease(store, 1))
    dropped = store.drop_segment(FRONTIER, TODAY - DAY)
    assert (dropped.added, dropped.succeeded, dropped.pending) == (2, 1, 1)
    assert [one.segment for one in store.segments(FRONTIER)] == [TODAY]
    assert store.lookup(FRONTIER, TODAY - DAY, "a") is None
    assert keys(lease(store)) == ["a"]
    with pytest.raises(UnknownSegment):
        store.drop_segment(FRONTIER, TODAY - DAY)
    # And can begin again, with nothing left of before.
    assert add(store, "a", "b", active_at=NOW - DAY) == [True, True]
    assert (books(store, TODAY - DAY).added, books(store, TODAY - DAY).succeeded) == (2, 0)
    assert keys(lease(store)) == ["a", "b"]


def test_a_segment_with_leases_is_dropped_only_when_that_is_meant(store: SeedStore) -> None:
    add(store, "a", "b", active_at=NOW - DAY)
    add(store, "c", active_at=NOW)
    taken = lease(store)
    with pytest.raises(SeedInUse, match="2 seeds"):
        store.drop_segment(FRONTIER, TODAY - DAY)
    assert store.drop_segment(FRONTIER, TODAY - DAY, leased_too=True).leased == 2
    answers = finish(store, taken)
    assert codes(answers) == ["unknown_key", "unknown_key", "finished"]
    assert store.expire(now=NOW + DAY) == 0


def test_a_segment_can_be_read_as_a_whole(store: SeedStore) -> None:
    add(store, "a", "b", "c", active_at=NOW, ext={"n": 1})
    add(store, "other")
    store.add(2, [], now=NOW)
    taken = store.lease(FRONTIER, owner="w1", limit=2, seconds=60, now=NOW)
    assert keys(taken) == ["other", "a"]
    rows = {one.key: one for one in store.export(FRONTIER, TODAY)}
    assert sorted(rows) == ["a", "b", "c"]
    for key, row in rows.items():
        assert row == store.lookup(FRONTIER, TODAY, key)
    assert (rows["a"].state, rows["a"].owner) == (State.RUNNING, "w1")
    assert list(store.export(FRONTIER, TODAY + DAY)) == []


def test_a_segment_that_is_read_stands_still_meanwhile(store: SeedStore) -> None:
    add(store, *(f"k{number}" for number in range(5000)))
    reading = store.export(FRONTIER, DEFAULT_SEGMENT)
    first = next(reading)
    add(store, "later")
    finish(store, lease(store, 10_000))
    rest = list(reading)
    assert len(rest) == 4999
    assert {one.state for one in [first, *rest]} == {State.INIT}


def test_sizes_of_segments_are_told(store: SeedStore) -> None:
    add(store, *(f"http://host/{number}" for number in range(2000)))
    assert store.segments(FRONTIER)[0].size_bytes > 2000 * 100
