"""What both stores promise of a lease whose answer got lost."""

from __future__ import annotations

import pytest

from apps.seeds.daemon.refusals import SeedCallRefused
from apps.seeds.engine.seeds import Outcome
from apps.seeds.stores.base import Finish, SeedStore
from tests.seeds.stores.calls import FRONTIER, NOW, TODAY, add, finish, keys, lease

LATER = NOW + 60_001


def named(store: SeedStore, call: str, limit: int = 100, owner: str = "w1") -> list[str]:
    taken = store.lease(FRONTIER, owner=owner, limit=limit, seconds=60, now=NOW, call=call)
    return keys(taken)


def test_a_lease_is_recalled_by_the_name_of_its_call(store: SeedStore) -> None:
    add(store, "today-2", "today-1", active_at=NOW)
    add(store, "early", active_at=TODAY)
    add(store, "timeless")
    taken = store.lease(FRONTIER, owner="w1", limit=3, seconds=60, now=NOW, call="c1")
    assert keys(taken) == ["timeless", "early", "today-2"]
    assert store.recall(FRONTIER, owner="w1", call="c1") == taken
    for frontier, owner, call in ((2, "w1", "c1"), (FRONTIER, "w2", "c1"), (FRONTIER, "w1", "c2")):
        assert store.recall(frontier, owner=owner, call=call) is None


def test_a_lease_that_is_asked_for_again_is_the_same(store: SeedStore) -> None:
    add(store, "a", "b", "c")
    taken = store.lease(FRONTIER, owner="w1", limit=2, seconds=60, now=NOW, call="c1")
    again = store.lease(FRONTIER, owner="w1", limit=2, seconds=60, now=NOW, call="c1", again=True)
    assert again == taken
    other = store.lease(FRONTIER, owner="w1", limit=2, seconds=60, now=NOW, call="c2", again=True)
    assert keys(other) == ["c"]


def test_a_call_that_is_anothers_by_now_takes_nothing(store: SeedStore) -> None:
    def check() -> None:
        raise SeedCallRefused("ask_again", "somebody else has answered")

    add(store, "a")
    with pytest.raises(SeedCallRefused):
        store.lease(FRONTIER, owner="w1", limit=1, seconds=60, now=NOW, call="c1", check=check)
    assert named(store, "c2") == ["a"]


def test_only_what_is_still_leased_is_recalled(store: SeedStore) -> None:
    add(store, "a", "b")
    assert named(store, "c1") == ["a", "b"]
    first = store.recall(FRONTIER, owner="w1", call="c1")
    assert first is not None
    one = first.seeds[0]
    done = [Finish(one.segment, one.key, first.generation, Outcome.FAILURE)]
    store.finish(FRONTIER, done, owner="w1", now=NOW)
    again = store.recall(FRONTIER, owner="w1", call="c1")
    assert again is not None
    assert keys(again) == ["b"]
    # Leased anew by another call it belongs to that one.
    assert named(store, "c2") == ["a"]
    assert store.recall(FRONTIER, owner="w1", call="c1") == again


def test_a_lease_that_is_over_is_not_recalled(store: SeedStore) -> None:
    add(store, "a", "b", "c")
    assert named(store, "finished", 1) == ["a"]
    first = store.recall(FRONTIER, owner="w1", call="finished")
    assert first is not None
    finish(store, first)
    assert named(store, "back", 1) == ["b"]
    back = store.recall(FRONTIER, owner="w1", call="back")
    assert back is not None
    store.give_back(FRONTIER, back.generation, owner="w1", now=NOW)
    assert named(store, "expired", 1) == ["b"]
    store.expire(now=LATER)
    for call in ("finished", "back", "expired"):
        assert store.recall(FRONTIER, owner="w1", call=call) is None


def test_a_longer_lease_is_recalled_with_its_new_deadline(store: SeedStore) -> None:
    add(store, "a")
    named(store, "c1")
    first = store.recall(FRONTIER, owner="w1", call="c1")
    assert first is not None
    store.extend(FRONTIER, first.generation, owner="w1", seconds=600, now=NOW)
    longer = store.recall(FRONTIER, owner="w1", call="c1")
    assert longer is not None
    assert longer.deadline == NOW + 600_000


def test_all_that_waits_is_counted(store: SeedStore) -> None:
    assert store.pending(FRONTIER) == 0
    add(store, "a", "b")
    add(store, "tomorrow", active_at=NOW + 86_400_000)
    assert store.pending(FRONTIER) == 3
    lease(store, 1)
    assert (store.pending(FRONTIER), store.pending(2)) == (2, 0)
