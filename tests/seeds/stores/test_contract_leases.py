"""What both stores promise of leasing: nothing leaves before its finish, and once only."""

from __future__ import annotations

import pytest

from apps.seeds.engine.errors import BadCall, WrongSeedLease
from apps.seeds.engine.seeds import DEFAULT_SEGMENT, Outcome, State
from apps.seeds.stores.base import Finish, Finished, SeedStore
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
    seed,
)

LATER = NOW + 60_001


@pytest.mark.covers("S3.13", "S3.15", "S3.16")
def test_a_leased_seed_stays_until_it_is_finished(store: SeedStore) -> None:
    add(store, "a", "b")
    taken = lease(store, 1)
    assert keys(taken) == ["a"]
    assert taken.deadline == NOW + 60_000
    assert (books(store).pending, books(store).leased) == (1, 1)
    found = store.lookup(FRONTIER, DEFAULT_SEGMENT, "a")
    assert found is not None
    assert (found.state, found.owner, found.deadline) == (State.RUNNING, "w1", NOW + 60_000)
    assert add(store, "a") == [False]
    assert keys(lease(store)) == ["b"]
    assert keys(lease(store)) == []


@pytest.mark.covers("S3.14")
def test_seeds_without_a_time_come_first_then_the_oldest_segment(store: SeedStore) -> None:
    add(store, "today-2", active_at=NOW)
    add(store, "today-1", active_at=NOW - 1)
    add(store, "yesterday", active_at=NOW - DAY)
    add(store, "first", "second")
    assert keys(lease(store, 4)) == ["first", "second", "yesterday", "today-1"]
    assert keys(lease(store)) == ["today-2"]


@pytest.mark.covers("S3.14")
def test_future_seeds_wait_and_say_until_when(store: SeedStore) -> None:
    add(store, "soon", active_at=NOW + 5000)
    add(store, "tomorrow", active_at=NOW + DAY)
    add(store, "now", active_at=NOW)
    assert store.next_due(FRONTIER, now=NOW) == NOW + 5000
    assert keys(lease(store)) == ["now"]
    assert keys(lease(store, now=NOW + 4999)) == []
    assert keys(lease(store, now=NOW + 5000)) == ["soon"]
    assert store.next_due(FRONTIER, now=NOW + 5000) == NOW + DAY
    assert keys(lease(store, now=NOW + DAY)) == ["tomorrow"]
    assert store.next_due(FRONTIER, now=NOW + DAY) is None


def test_a_seed_that_is_due_earlier_overtakes(store: SeedStore) -> None:
    add(store, "a", "b", active_at=NOW)
    assert keys(lease(store, 1)) == ["a"]
    add(store, "early", active_at=TODAY)
    assert keys(lease(store, 1)) == ["early"]
    assert keys(lease(store, 1)) == ["b"]


@pytest.mark.covers("S3.11", "S3.15")
@pytest.mark.parametrize(
    ("outcome", "state", "counter"),
    [
        (Outcome.SUCCESS, State.SUCCEEDED, "succeeded"),
        (Outcome.GIVEN_UP, State.FAILED, "failed"),
        (Outcome.IGNORED, State.IGNORED, "ignored"),
    ],
    ids=["success", "given up", "ignored"],
)
def test_a_finish_ends_a_seed(
    store: SeedStore, outcome: Outcome, state: State, counter: str
) -> None:
    add(store, "a")
    assert finish(store, lease(store), outcome) == [Finished("finished", state)]
    assert getattr(books(store), counter) == 1
    assert books(store).leased == 0
    assert add(store, "a") == [False]
    assert keys(lease(store)) == []


@pytest.mark.covers("S3.11", "S3.15", "S3.17")
def test_a_failure_is_tried_again_until_max_retry(store: SeedStore) -> None:
    add(store, "a", "b")
    first = lease(store, 1)
    assert (keys(first), first.seeds[0].retry) == (["a"], 0)
    assert finish(store, first, Outcome.FAILURE) == [Finished("retried", State.RETRY)]
    # What was added meanwhile comes first.
    second = lease(store, 2)
    assert [(one.key, one.retry) for one in second.seeds] == [("b", 0), ("a", 1)]
    assert codes(finish(store, second, Outcome.FAILURE)) == ["retried", "retried"]
    third = lease(store, 2)
    assert [(one.key, one.retry) for one in third.seeds] == [("b", 1), ("a", 2)]
    assert finish(store, third, Outcome.FAILURE) == [
        Finished("retried", State.RETRY),
        Finished("finished", State.FAILED),
    ]
    assert (books(store).retried, books(store).failed, books(store).pending) == (4, 1, 1)


def test_a_seed_may_bring_its_own_number_of_tries(store: SeedStore) -> None:
    add(store, "a", max_retry=0)
    assert codes(finish(store, lease(store), Outcome.FAILURE)) == ["finished"]
    add(store, "b", max_retry=1)
    assert codes(finish(store, lease(store), Outcome.FAILURE)) == ["finished"]
    assert books(store).failed == 2


def test_a_lease_that_runs_out_returns_its_seeds(store: SeedStore) -> None:
    add(store, "a", "b", "c")
    taken = lease(store, 2)
    assert store.expire(now=NOW + 59_999) == 0
    assert store.expire(now=NOW + 60_000) == 2
    assert store.expire(now=NOW + 60_000) == 0
    assert books(store).expired == 2
    again = lease(store, owner="w2", now=LATER)
    assert keys(again) == ["c", "a", "b"]
    assert again.generation > taken.generation
    assert [one.retry for one in again.seeds] == [0, 1, 1]


def test_a_seed_that_kills_its_crawlers_ends(store: SeedStore) -> None:
    add(store, "a", max_retry=2)
    lease(store)
    assert store.expire(now=LATER) == 1
    lease(store, now=LATER)
    assert store.expire(now=LATER + 60_000) == 1
    assert keys(lease(store, now=LATER + 60_000)) == []
    assert books(store).failed == 1


def test_a_late_finish_changes_nothing_and_is_counted(store: SeedStore) -> None:
    add(store, "a")
    first = lease(store)
    store.expire(now=LATER)
    assert finish(store, first, now=LATER) == [Finished("late", State.RETRY)]
    second = lease(store, owner="w2", now=LATER)
    assert finish(store, first, now=LATER) == [Finished("late", State.RUNNING)]
    assert codes(finish(store, second, owner="w2", now=LATER)) == ["finished"]
    assert codes(finish(store, first, now=LATER)) == ["late"]
    assert books(store).late == 3
    assert books(store).succeeded == 1


def test_a_finish_that_comes_twice_counts_once(store: SeedStore) -> None:
    add(store, "a")
    taken = lease(store)
    assert codes(finish(store, taken)) == ["finished"]
    assert finish(store, taken, Outcome.GIVEN_UP) == [Finished("repeated", State.SUCCEEDED)]
    add(store, "b")
    (one,) = lease(store).seeds
    known = store.lookup(FRONTIER, DEFAULT_SEGMENT, "b")
    assert known is not None
    twice = [Finish(DEFAULT_SEGMENT, one.key, known.generation, Outcome.SUCCESS)] * 2
    answers = store.finish(FRONTIER, twice, owner="w1", now=NOW)
    assert codes(answers) == ["finished", "repeated"]
    assert books(store).succeeded == 2


def test_a_wrong_lease_and_an_unknown_key_are_refused(store: SeedStore) -> None:
    add(store, "a")
    taken = lease(store)
    assert codes(finish(store, taken, owner="thief")) == ["wrong_lease"]
    strange = [
        Finish(DEFAULT_SEGMENT, "a", taken.generation + 1, Outcome.SUCCESS),
        Finish(DEFAULT_SEGMENT, "a", 0, Outcome.SUCCESS),
        Finish(DEFAULT_SEGMENT, "a", -5, Outcome.SUCCESS),
        Finish(DEFAULT_SEGMENT, "b", taken.generation, Outcome.SUCCESS),
        Finish(DEFAULT_SEGMENT, "\ud800", taken.generation, Outcome.SUCCESS),
        Finish(TODAY, "a", taken.generation, Outcome.SUCCESS),
        Finish(-1, "a", taken.generation, Outcome.SUCCESS),
    ]
    answers = store.finish(FRONTIER, strange, owner="w1", now=NOW)
    assert codes(answers) == ["wrong_lease"] * 3 + ["unknown_key"] * 4
    assert codes(store.finish(2, strange[:1], owner="w1", now=NOW)) == ["unknown_key"]
    assert books(store).leased == 1


def test_a_pending_seed_cannot_be_finished(store: SeedStore) -> None:
    add(store, "a")
    one = Finish(DEFAULT_SEGMENT, "a", 1, Outcome.SUCCESS)
    assert codes(store.finish(FRONTIER, [one], owner="w1", now=NOW)) == ["wrong_lease"]


def test_one_finish_may_mix_segments_and_leases(store: SeedStore) -> None:
    store.add(FRONTIER, [seed("a"), seed("a", active_at=NOW), seed("b")], now=NOW)
    first, second = lease(store, 1), lease(store, 2)
    finishes = [
        Finish(DEFAULT_SEGMENT, "b", second.generation, Outcome.FAILURE),
        Finish(TODAY, "a", second.generation, Outcome.SUCCESS),
        Finish(DEFAULT_SEGMENT, "a", first.generation, Outcome.SUCCESS),
    ]
    assert keys(first) == ["a"]
    answers = store.finish(FRONTIER, finishes, owner="w1", now=NOW)
    assert codes(answers) == ["retried", "finished", "finished"]


def test_seeds_given_back_are_pending_as_before(store: SeedStore) -> None:
    add(store, "a", "b", "c")
    taken = lease(store, 2)
    finish_one = Finish(DEFAULT_SEGMENT, "a", taken.generation, Outcome.SUCCESS)
    store.finish(FRONTIER, [finish_one], owner="w1", now=NOW)
    with pytest.raises(WrongSeedLease):
        store.give_back(FRONTIER, taken.generation, owner="w2", now=NOW)
    assert store.give_back(FRONTIER, taken.generation, owner="w1", now=NOW) == 1
    again = lease(store, owner="w2")
    assert keys(again) == ["b", "c"]
    assert again.seeds[0].retry == 0
    with pytest.raises(WrongSeedLease):
        store.give_back(FRONTIER, taken.generation, owner="w1", now=NOW)


def test_a_lease_can_be_extended_while_it_lasts(store: SeedStore) -> None:
    add(store, "a")
    taken = lease(store)
    number = taken.generation
    with pytest.raises(WrongSeedLease, match=r"w2 has no lease"):
        store.extend(FRONTIER, number, owner="w2", seconds=60, now=NOW)
    with pytest.raises(WrongSeedLease):
        store.extend(2, number, owner="w1", seconds=60, now=NOW)
    at = NOW + 30_000
    assert store.extend(FRONTIER, number, owner="w1", seconds=60, now=at) == at + 60_000
    assert store.extend(FRONTIER, number, owner="w1", seconds=1, now=at) == at + 60_000
    assert store.expire(now=NOW + 60_000) == 0
    assert codes(finish(store, taken, now=NOW + 80_000)) == ["finished"]
    with pytest.raises(WrongSeedLease):
        store.extend(FRONTIER, number, owner="w1", seconds=60, now=NOW + 80_000)


def test_after_an_outage_every_lease_has_its_time_anew(store: SeedStore) -> None:
    add(store, "a", "b")
    lease(store, 1)
    store.lease(FRONTIER, owner="w2", limit=1, seconds=1000, now=NOW)
    store.extend_all(seconds=60, now=LATER)
    assert store.expire(now=LATER + 59_999) == 0
    assert store.expire(now=LATER + 60_000) == 1
    assert store.expire(now=NOW + 1_000_000) == 1


@pytest.mark.parametrize(
    ("owner", "limit", "seconds"),
    [
        ("", 1, 1),
        ("a\nb", 1, 1),
        ("x" * 201, 1, 1),
        ("w", 0, 1),
        ("w", 10_001, 1),
        ("w", 1, 0),
        ("w", 1, -1),
        ("w", 1, float("nan")),
        ("w", 1, 86_401),
    ],
    ids=["no owner", "line", "long owner", "none", "many", "no time", "past", "nan", "days"],
)
def test_a_lease_that_cannot_be_is_refused(
    store: SeedStore, owner: str, limit: int, seconds: float
) -> None:
    with pytest.raises(BadCall):
        store.lease(FRONTIER, owner=owner, limit=limit, seconds=seconds, now=NOW)
