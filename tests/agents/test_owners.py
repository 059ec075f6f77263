"""Owners of agents that are no runs: fetchers of stored requests."""

from __future__ import annotations

from datetime import timedelta

import pytest

from apps.agents.engine.owners import known_number, number_of, owner_of
from apps.agents.errors import AllocationRefused
from apps.agents.models import Allocation
from apps.agents.queries import all_open_allocations, allocation_stamps, open_allocation, run_of
from apps.agents.services import allocate, register_agent, release, release_ended
from apps.requeststore.models import FetcherSlot
from apps.requeststore.services.slots import ALIVE, forget_slots, keep_slots, leave_slots, use_slot
from apps.runtime.queries import database_now
from tests.jobs.factories import NOW, make_project
from yardkit.protocol import Allocate, Register


def asks(slot: int, reply_to: str = "answers") -> Allocate:
    return Allocate(run=-slot, token="", reply_to=reply_to)


@pytest.fixture
def slot(db: None) -> int:
    """A fetcher of a project with an opened network, and one agent for it."""
    register_agent(
        message=Register(agent="a1", name="a1", boot="1", processors=1, total_memory_bytes=1),
        now=NOW,
    )
    project = make_project(allowed_networks=["127.0.0.0/8"])
    return use_slot(project_id=project.pk, biz="news", name="box")


@pytest.mark.parametrize(("number", "owner"), [(7, "run:7"), (-3, "fetcher:3")])
def test_a_number_and_an_owner_are_the_same(number: int, owner: str) -> None:
    assert owner_of(number) == owner
    assert number_of(owner) == known_number(owner) == number


def test_what_is_no_owner_has_no_number() -> None:
    assert number_of("biz:news") is number_of("run:x") is None
    with pytest.raises(ValueError, match="biz:news"):
        known_number("biz:news")


@pytest.mark.covers("S4.21")
def test_a_fetcher_gets_agents_and_its_projects_networks(slot: int) -> None:
    made = allocate(message=asks(slot), alive=["a1"], now=NOW)

    assert made.owner == f"fetcher:{slot}"
    assert made.settings["allowed_networks"] == ["127.0.0.0/8"]
    found = open_allocation(-slot)
    assert found is not None
    assert (found.run, found.agents) == (-slot, ("a1",))
    assert list(all_open_allocations()) == list(allocation_stamps([-slot])) == [-slot]
    assert run_of(made) is None


def test_who_asks_again_keeps_his_agents_and_another_start_gets_new_ones(slot: int) -> None:
    first = allocate(message=asks(slot), alive=["a1"], now=NOW)
    assert allocate(message=asks(slot), alive=["a1"], now=NOW) == first
    assert allocate(message=asks(slot, "others"), alive=["a1"], now=NOW) != first
    assert [one.owner for one in release(owner=first.owner, now=NOW)] == [first.owner]
    assert not Allocation.objects.open().exists()


def test_an_unknown_fetcher_gets_nothing(db: None) -> None:
    with pytest.raises(AllocationRefused, match="fetcher:99 does not exist"):
        allocate(message=asks(99), alive=["a1"], now=NOW)


def test_agents_of_a_dead_fetcher_go_back(slot: int) -> None:
    made = allocate(message=asks(slot), alive=["a1"], now=NOW)
    assert release_ended(now=NOW) == []

    FetcherSlot.objects.update(seen_at=database_now() - ALIVE - timedelta(seconds=1))

    assert release_ended(now=NOW) == [made]
    with pytest.raises(AllocationRefused, match="ended"):
        allocate(message=asks(slot), alive=["a1"], now=NOW)


def test_a_fetcher_that_lives_keeps_its_agents_and_one_that_leaves_does_not(slot: int) -> None:
    allocate(message=asks(slot), alive=["a1"], now=NOW)
    FetcherSlot.objects.update(seen_at=database_now() - 2 * ALIVE)
    keep_slots([slot])
    assert release_ended(now=NOW) == []
    leave_slots([slot])
    assert len(release_ended(now=NOW)) == 1


def test_slots_of_long_ago_are_deleted(slot: int) -> None:
    assert forget_slots() == 0
    FetcherSlot.objects.update(seen_at=database_now() - timedelta(days=2))
    assert forget_slots() == 1
