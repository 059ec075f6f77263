"""What both stores promise of adding: exact, per segment, all or nothing."""

from __future__ import annotations

import pytest

from apps.seeds.engine.errors import (
    BadCall,
    ClockBack,
    InvalidFrontierSetting,
    SeedStoreUnavailable,
)
from apps.seeds.engine.filters import FilterSettings
from apps.seeds.engine.seeds import DEFAULT_SEGMENT, Outcome, State
from apps.seeds.stores.base import MAX_BATCH, AddResult, SeedStore
from tests.seeds.stores.calls import (
    DAY,
    FRONTIER,
    NOW,
    TODAY,
    add,
    books,
    finish,
    lease,
    seed,
    seeds,
)


@pytest.mark.covers("S3.2", "S3.10")
def test_a_key_is_new_once_in_a_segment(store: SeedStore) -> None:
    assert add(store, "a", "b", "a") == [True, True, False]
    assert add(store, "b", "c", now=NOW + 5) == [False, True]
    assert books(store).added == 3
    assert books(store).duplicates == 2
    assert books(store).pending == 3


@pytest.mark.covers("S3.2")
def test_the_same_key_is_new_again_in_another_segment(store: SeedStore) -> None:
    assert add(store, "a", active_at=NOW) == [True]
    assert add(store, "a", active_at=NOW + 60_000) == [False]
    assert add(store, "a", active_at=NOW + DAY) == [True]
    assert add(store, "a") == [True]
    assert [one.segment for one in store.segments(FRONTIER)] == [
        DEFAULT_SEGMENT,
        TODAY,
        TODAY + DAY,
    ]


def test_a_duplicate_is_told_since_when_and_in_which_state_it_is(store: SeedStore) -> None:
    add(store, "a")
    finish(store, lease(store))
    (answer,) = store.add(FRONTIER, seeds("a"), now=NOW + 77)
    assert answer == AddResult(False, NOW, State.SUCCEEDED)
    new, again = store.add(FRONTIER, seeds("b", "b"), now=NOW + 80)
    assert new == AddResult(True, NOW + 80, State.INIT)
    assert again == AddResult(False, NOW + 80, State.INIT)


def test_frontiers_do_not_know_each_other(store: SeedStore) -> None:
    add(store, "a")
    assert store.add(2, seeds("a"), now=NOW)[0].new
    assert store.lease(3, owner="w", limit=5, seconds=5, now=NOW).seeds == []
    assert store.segments(3) == []


def test_one_batch_may_go_to_several_segments(store: SeedStore) -> None:
    batch = [seed("a"), seed("a", active_at=NOW), seed("b"), seed("a"), seed("a", active_at=NOW)]
    answers = store.add(FRONTIER, batch, now=NOW)
    assert [one.new for one in answers] == [True, True, True, False, False]


def test_an_empty_batch_is_nothing(store: SeedStore) -> None:
    assert store.add(FRONTIER, [], now=NOW) == []
    assert store.segments(FRONTIER) == []


def test_a_batch_has_a_limit(store: SeedStore) -> None:
    with pytest.raises(BadCall, match="10001 at once"):
        store.add(FRONTIER, [seed("a")] * (MAX_BATCH + 1), now=NOW)
    assert store.segments(FRONTIER) == []


def test_the_largest_batch_is_taken_and_handed_out(store: SeedStore) -> None:
    names = [f"seed-{number}" for number in range(MAX_BATCH)]
    assert all(add(store, *names))
    taken = lease(store, MAX_BATCH)
    assert [one.key for one in taken.seeds] == names
    assert {one.code for one in finish(store, taken)} == {"finished"}
    assert books(store).succeeded == MAX_BATCH


@pytest.mark.covers("S3.7")
def test_a_filter_filled_tenfold_loses_no_seed(store: SeedStore) -> None:
    store.set_filter(FRONTIER, FilterSettings(expected=100, rate=0.01))
    for start in range(0, 1000, 50):
        names = [f"http://h/{number}" for number in range(start, start + 50)]
        assert all(add(store, *names))
        assert not any(add(store, *names))
    (segment,) = store.segments(FRONTIER)
    assert segment.books.added == segment.books.duplicates == 1000
    assert segment.filter is not None
    assert segment.filter.fill > 0.98
    assert segment.filter.rate > 0.9
    assert len(lease(store, 2000).seeds) == 1000


def test_the_fill_and_rate_of_a_filter_are_known(store: SeedStore) -> None:
    store.set_filter(FRONTIER, FilterSettings(expected=1000, rate=0.01))
    add(store, *(f"k{number}" for number in range(500)))
    state = store.segments(FRONTIER)[0].filter
    assert state is not None
    assert (state.expected, state.wanted_rate, state.ready) == (1000, 0.01, True)
    assert 0.2 < state.fill < 0.35
    assert 0 < state.rate < 0.01
    with pytest.raises(InvalidFrontierSetting, match="0 keys"):
        store.set_filter(FRONTIER, FilterSettings(expected=0))


def test_what_was_given_in_comes_out(store: SeedStore) -> None:
    ext = {"depth": 2, "text": "中文\u0000", "list": [1, None, {"x": 1.5}]}
    given = seed("http://例子/ä#x", ext=ext, max_retry=7)
    store.add(FRONTIER, [given], now=NOW)
    (taken,) = lease(store).seeds
    assert (taken.data, taken.key, taken.ext) == (given.data, given.key, ext)
    assert (taken.retry, taken.max_retry, taken.segment) == (0, 7, DEFAULT_SEGMENT)


def test_a_clock_that_goes_far_back_is_refused(store: SeedStore) -> None:
    add(store, "a")
    assert add(store, "b", now=NOW - 50_000) == [True]
    with pytest.raises(ClockBack, match="back by 61 s"):
        add(store, "c", now=NOW - 61_000)
    for call in (
        lambda: lease(store, now=NOW - 61_000),
        lambda: store.expire(now=NOW - 61_000),
        lambda: store.finish(FRONTIER, [], owner="w1", now=NOW - 61_000),
    ):
        with pytest.raises(ClockBack):
            call()
    assert books(store).added == 2


@pytest.mark.covers("S3.18")
def test_a_closed_store_takes_nothing(store: SeedStore) -> None:
    add(store, "a")
    taken = lease(store)
    store.close()
    store.close()
    with pytest.raises(SeedStoreUnavailable):
        add(store, "b")
    with pytest.raises(SeedStoreUnavailable):
        finish(store, taken, Outcome.SUCCESS)
    for read in (
        lambda: store.lookup(FRONTIER, DEFAULT_SEGMENT, "a"),
        lambda: store.segments(FRONTIER),
        lambda: store.next_due(FRONTIER, now=NOW),
        lambda: list(store.export(FRONTIER, DEFAULT_SEGMENT)),
    ):
        with pytest.raises(SeedStoreUnavailable):
            read()
