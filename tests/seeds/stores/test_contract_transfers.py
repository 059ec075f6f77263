"""What both stores promise of seeds that come with what has become of them."""

from __future__ import annotations

import msgspec
import pytest

from apps.seeds.engine.errors import BadCall, SeedInUse, UnknownSegment
from apps.seeds.engine.keys import key_resolver
from apps.seeds.engine.rules import FrontierRules, NewPlace
from apps.seeds.engine.seeds import DEFAULT_SEGMENT, Outcome, Seed, State
from apps.seeds.engine.segments import segment_resolver, time_zone
from apps.seeds.stores.base import (
    MAX_PAGE_BYTES,
    Known,
    MovedSlice,
    Regroup,
    ReopenedCount,
    ReopenedSlice,
    SeedStore,
    SegmentCounts,
)
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

BESIDE = FRONTIER | 1 << 31
# Monday of the week that TODAY is in.
MONDAY = segment_resolver("week", time_zone("UTC"))(TODAY)


def by(segments: str = "day", keys: str = "whole", zone: str = "UTC") -> Regroup:
    """Other rules."""
    return FrontierRules(
        segments=segment_resolver(segments, time_zone(zone)), keys=key_resolver(keys)
    ).regroup


def same(segment: int, key: str, _data: str, due: int) -> NewPlace:
    """No other rules."""
    return NewPlace(segment, key, due, kept=False)


def known(segment: int, key: str, **others: object) -> Known:
    """A seed from somewhere else."""
    fields = {
        "data": key,
        "state": State.INIT,
        "retry": 0,
        "max_retry": 3,
        "added_at": NOW - DAY,
        "changed_at": NOW - 5,
        "due": segment or 1,
        "generation": 7,
    }
    return Known(segment=segment, key=key, **fields | others)  # type: ignore[arg-type]


def move_all(
    store: SeedStore, source: int, target: int, regroup: Regroup, limit: int = 2
) -> list[MovedSlice]:
    """Segment by segment, from the first one."""
    done = []
    while segments := store.segments(source):
        after: bytes | None = b""
        while after is not None:
            done.append(
                store.move(
                    source, segments[0].segment, target, regroup, after=after, limit=limit, now=NOW
                )
            )
            after = done[-1].after
    return done


def everything(store: SeedStore, frontier: int) -> dict[tuple[int, str], Known]:
    """All seeds of a frontier."""
    return {
        (one.segment, one.key): one
        for segment in store.segments(frontier)
        for one in store.export(frontier, segment.segment)
    }


def total(store: SeedStore, frontier: int) -> SegmentCounts:
    """The sums over all segments, each of which balances."""
    sums = SegmentCounts()
    for one in store.segments(frontier):
        assert one.books.balance(), one
        sums = sums.plus(one.books)
    return sums


def test_restored_seeds_are_as_they_were(store: SeedStore) -> None:
    states = [State.INIT, State.SUCCEEDED, State.FAILED, State.RETRY, State.IGNORED]
    rows = [
        known(TODAY, f"k{int(state)}", state=state, retry=int(state == State.RETRY), ext={"n": 1})
        for state in states
    ]
    answers = store.restore(FRONTIER, rows, now=NOW)
    assert [(one.new, one.since, one.state) for one in answers] == [
        (True, NOW - DAY, state) for state in states
    ]
    found = everything(store, FRONTIER)
    assert found == {(TODAY, one.key): msgspec.structs.replace(one, generation=0) for one in rows}
    assert books(store, TODAY) == SegmentCounts(
        added=5, pending=2, succeeded=1, failed=1, ignored=1
    )
    assert keys(lease(store)) == ["k0", "k3"]


def test_seeds_of_one_time_keep_their_order_when_a_move_brings_them_together(
    store: SeedStore,
) -> None:
    rows = [
        known(TODAY, "a", due=NOW),
        known(TODAY - DAY, "b", due=NOW),
        known(TODAY, "c", due=NOW),
        known(TODAY - DAY, "d", due=NOW),
    ]
    store.restore(FRONTIER, rows, now=NOW)
    move_all(store, FRONTIER, BESIDE, by("none"))
    move_all(store, BESIDE, FRONTIER, same)
    assert keys(lease(store)) == ["a", "b", "c", "d"]


def test_restored_seeds_that_are_known_count_as_duplicates(store: SeedStore) -> None:
    add(store, "a")
    finish(store, lease(store))
    answers = store.restore(
        FRONTIER, [known(0, "a"), known(0, "b", state=State.FAILED), known(0, "b")], now=NOW
    )
    assert [(one.new, one.state) for one in answers] == [
        (False, State.SUCCEEDED),
        (True, State.FAILED),
        (False, State.FAILED),
    ]
    assert books(store) == SegmentCounts(added=2, duplicates=2, succeeded=1, failed=1)
    assert add(store, "b", "c") == [False, True]


def test_a_seed_that_was_leased_is_restored_as_pending(store: SeedStore) -> None:
    rows = [
        known(0, "once", state=State.RUNNING, owner="w", deadline=NOW),
        known(0, "twice", state=State.RUNNING, retry=1, owner="w", deadline=NOW),
    ]
    states = [one.state for one in store.restore(FRONTIER, rows, now=NOW)]
    assert states == [State.INIT, State.RETRY]
    taken = lease(store)
    assert [(one.key, one.retry) for one in taken.seeds] == [("once", 0), ("twice", 1)]
    assert codes(finish(store, taken)) == ["finished", "finished"]


def test_what_no_store_could_hold_is_not_restored(store: SeedStore) -> None:
    with pytest.raises(BadCall):
        store.restore(FRONTIER, [known(0, "a"), known(-5, "b")], now=NOW)
    assert store.segments(FRONTIER) == []
    assert store.restore(FRONTIER, [], now=NOW) == []


def test_a_segment_is_read_in_pages(store: SeedStore) -> None:
    names = {f"k{number}" for number in range(7)}
    add(store, *names)
    add(store, "other", active_at=NOW)
    read: list[str] = []
    after: bytes | None = b""
    pages = 0
    while after is not None:
        page = store.read(FRONTIER, DEFAULT_SEGMENT, after=after, limit=3)
        read += [one.key for one in page.seeds]
        after = page.after
        pages += 1
    assert (pages, len(read), set(read)) == (3, 7, names)
    taken = lease(store)
    one = store.read(FRONTIER, DEFAULT_SEGMENT, limit=1).seeds[0]
    assert one == store.lookup(FRONTIER, DEFAULT_SEGMENT, one.key)
    assert (one.owner, one.generation) == ("w1", taken.generation)
    assert store.read(FRONTIER, TODAY + DAY, limit=5).seeds == []
    with pytest.raises(BadCall):
        store.read(FRONTIER, DEFAULT_SEGMENT, limit=0)


def test_a_page_is_no_larger_than_a_message(store: SeedStore) -> None:
    large = "x" * 60_000
    count = 3 * MAX_PAGE_BYTES // 60_000
    for start in range(0, count, 50):
        numbers = range(start, min(count, start + 50))
        store.restore(FRONTIER, [known(0, f"k{n}", data=large) for n in numbers], now=NOW)
    read = 0
    sizes = []
    after: bytes | None = b""
    while after is not None:
        page = store.read(FRONTIER, 0, after=after, limit=1000)
        sizes.append(sum(len(one.data) for one in page.seeds))
        read += len(page.seeds)
        after = page.after
    assert read == count
    assert len(sizes) >= 3
    assert max(sizes) <= MAX_PAGE_BYTES


def test_moved_seeds_keep_everything_but_their_place(store: SeedStore) -> None:
    add(store, "done", active_at=NOW - DAY)
    finish(store, lease(store))
    add(store, "bad", active_at=NOW - DAY)
    finish(store, lease(store), Outcome.GIVEN_UP)
    add(store, "again", active_at=NOW)
    finish(store, lease(store), Outcome.FAILURE)
    add(store, "new", active_at=NOW, ext={"n": 1})
    add(store, "later", active_at=NOW + 20 * DAY)
    add(store, "timeless", "urgent")
    before = everything(store, FRONTIER)
    done = move_all(store, FRONTIER, BESIDE, by("week"))
    assert store.segments(FRONTIER) == []
    assert (sum(one.moved for one in done), sum(one.met for one in done)) == (7, 0)
    after = everything(store, BESIDE)
    assert {segment for segment, _ in after} == {0, MONDAY, MONDAY + 21 * DAY}
    fields = ("data", "state", "retry", "max_retry", "added_at", "changed_at", "due", "ext")
    assert {one.key: [getattr(one, name) for name in fields] for one in after.values()} == {
        one.key: [getattr(one, name) for name in fields] for one in before.values()
    }
    move_all(store, BESIDE, FRONTIER, same)
    assert everything(store, FRONTIER) == after
    assert store.segments(BESIDE) == []
    # In the order in which they waited before.
    assert keys(lease(store)) == ["timeless", "urgent", "again", "new"]
    again = store.restore(FRONTIER, [known(MONDAY, key) for key in ("done", "bad", "x")], now=NOW)
    assert [one.new for one in again] == [False, False, True]


def test_keys_that_meet_are_counted_as_duplicates(store: SeedStore) -> None:
    add(store, "a", "b", active_at=NOW - DAY)
    finish(store, lease(store, 1))
    add(store, "a", "c", active_at=NOW)
    before = total(store, FRONTIER)
    done = move_all(store, FRONTIER, BESIDE, by("week"))
    assert (sum(one.moved for one in done), sum(one.met for one in done)) == (3, 1)
    after = total(store, BESIDE)
    assert after == SegmentCounts(added=3, duplicates=1, pending=2, succeeded=1)
    assert before.added + before.duplicates == after.added + after.duplicates
    # The one of the earlier segment stays, with its state.
    assert everything(store, BESIDE)[MONDAY, "a"].state == State.SUCCEEDED


def test_keys_that_become_one_in_a_slice_are_one(store: SeedStore) -> None:
    add(store, *(f"http://x/#{number}" for number in range(9)), "http://y/")
    done = move_all(store, FRONTIER, BESIDE, by(keys="page"), limit=100)
    assert (done[0].moved, done[0].met) == (2, 8)
    assert {key for _, key in everything(store, BESIDE)} == {"http://x/", "http://y/"}
    assert total(store, BESIDE) == SegmentCounts(added=2, duplicates=8, pending=2)
    move_all(store, BESIDE, FRONTIER, same)
    assert len(lease(store).seeds) == 2
    found = store.lookup(FRONTIER, 0, "http://x/")
    assert found is not None
    assert found.data.startswith("http://x/#")


def test_what_new_rules_refuse_keeps_its_key(store: SeedStore) -> None:
    def refuse(key: str) -> str:
        raise ValueError(key)

    add(store, "a", active_at=NOW)
    rules = FrontierRules(segments=segment_resolver("week", time_zone("UTC")), keys=refuse)
    done = move_all(store, FRONTIER, BESIDE, rules.regroup)
    assert (done[0].moved, done[0].kept) == (1, 1)
    assert list(everything(store, BESIDE)) == [(MONDAY, "a")]


def test_the_books_of_an_emptied_segment_go_where_it_began(store: SeedStore) -> None:
    add(store, "a", "b", "f", active_at=NOW)
    add(store, "a", active_at=NOW)
    store.forget(FRONTIER, TODAY, "f", now=NOW)
    finish(store, lease(store), Outcome.FAILURE)
    before = total(store, FRONTIER)
    assert (before.duplicates, before.forgotten, before.retried) == (1, 1, 2)
    move_all(store, FRONTIER, BESIDE, by("week"))
    assert total(store, BESIDE) == before
    assert [one.segment for one in store.segments(BESIDE)] == [MONDAY]
    # One that has nothing but books as well.
    for key in "ab":
        store.forget(BESIDE, MONDAY, key, now=NOW)
    move_all(store, BESIDE, FRONTIER, same)
    assert total(store, FRONTIER).forgotten == 3


def test_leased_seeds_are_not_moved(store: SeedStore) -> None:
    add(store, "a", "b")
    taken = lease(store, 1)
    with pytest.raises(SeedInUse, match="1 seeds"):
        store.move(FRONTIER, 0, BESIDE, same, after=b"", limit=5, now=NOW)
    finish(store, taken)
    assert store.move(FRONTIER, 0, BESIDE, same, after=b"", limit=5, now=NOW).moved == 2
    with pytest.raises(UnknownSegment):
        store.move(FRONTIER, TODAY, BESIDE, same, after=b"", limit=5, now=NOW)
    # Whoever had it before ends nothing in its new place.
    late = [one.code for one in store.finish(BESIDE, [], owner="w1", now=NOW)]
    assert late == []


def test_seeds_that_come_in_the_middle_of_a_move_go_too(store: SeedStore) -> None:
    add(store, *(f"k{number}" for number in range(20)))
    first = store.move(FRONTIER, 0, BESIDE, same, after=b"", limit=15, now=NOW)
    add(store, *(f"late{number}" for number in range(20)))
    after: bytes | None = first.after
    while after is not None:
        after = store.move(FRONTIER, 0, BESIDE, same, after=after, limit=15, now=NOW).after
    assert store.segments(FRONTIER) == []
    assert total(store, BESIDE) == SegmentCounts(added=40, pending=40)


def test_a_filter_saved_before_a_move_hides_nothing(store: SeedStore) -> None:
    add(store, "a", active_at=NOW)
    add(store, "b", active_at=NOW - DAY)
    store.move(FRONTIER, TODAY - DAY, BESIDE, same, after=b"", limit=5, now=NOW)
    back = by("month")
    store.move(BESIDE, TODAY - DAY, FRONTIER, back, after=b"", limit=5, now=NOW)
    month = segment_resolver("month", time_zone("UTC"))(NOW)
    answers = store.restore(FRONTIER, [known(month, "b"), known(month, "c")], now=NOW)
    assert [one.new for one in answers] == [False, True]


def test_failed_seeds_are_opened_slice_by_slice(store: SeedStore) -> None:
    add(store, *(f"k{number}" for number in range(10)), active_at=NOW - DAY)
    finish(store, lease(store, 10), Outcome.GIVEN_UP)
    add(store, "ok", active_at=NOW - DAY)
    add(store, "k3", active_at=NOW)
    slices: list[ReopenedSlice] = []
    after: bytes | None = b""
    while after is not None:
        slices.append(
            store.reopen_failed_slice(FRONTIER, TODAY - DAY, TODAY, after=after, limit=4, now=NOW)
        )
        after = slices[-1].after
    assert len(slices) == 3
    done = ReopenedCount(sum(one.reopened for one in slices), sum(one.duplicates for one in slices))
    assert done == ReopenedCount(9, 1)
    for segment in (TODAY + DAY, -1):
        with pytest.raises((UnknownSegment, BadCall)):
            store.reopen_failed_slice(FRONTIER, segment, segment, after=b"", limit=4, now=NOW)


def test_failed_seeds_opened_without_a_time_are_not_urgent(store: SeedStore) -> None:
    add(store, "bad", active_at=NOW - DAY)
    finish(store, lease(store), Outcome.GIVEN_UP)
    add(store, "first")
    reopen_failed(store, TODAY - DAY, DEFAULT_SEGMENT)
    assert keys(lease(store)) == ["first", "bad"]


def test_seeds_are_placed_by_other_rules() -> None:
    regroup = by("week", "page")
    assert regroup(TODAY, "x#1", "x#1", NOW) == NewPlace(MONDAY, "x", NOW, kept=False)
    # Without a time: stays without, and as urgent as it was.
    for due in (0, 1):
        assert regroup(0, "x", "x", due) == NewPlace(0, "x", due, kept=False)
    # Once all times were one segment.
    resolved = FrontierRules(segments=segment_resolver("none", time_zone("UTC"))).resolve(
        Seed("x", active_at=NOW)
    )
    assert regroup(resolved.segment, "x", "x", resolved.due) == NewPlace(MONDAY, "x", NOW, False)
