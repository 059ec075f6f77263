"""Leases that wait for their first seed."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import msgspec
import pytest

from apps.seeds.daemon import calls as service_calls
from apps.seeds.models import Frontier
from apps.seeds.stores.factory import open_store
from tests.seeds.daemon.call_helpers import Later, ask, ended, keys, seeds, token, until
from tests.seeds.daemon.conftest import MakeClient, Service, on_both_brokers, on_rocks
from yardkit import topology
from yardkit.broker import Broker
from yardkit.protocol import LeaseSeeds, SeedOutcome
from yardkit.seeds import SeedClient

pytestmark = pytest.mark.django_db(transaction=True)


def waiting(service: Service, client: SeedClient, count: int = 1, limit: int = 1) -> Later:
    """A lease that waits, as the ``count``-th one."""
    later = Later(partial(client.lease, limit, wait_seconds=30))
    until(lambda: len(service.daemon.long_poll) == count, "the lease waits")
    return later


@on_both_brokers
@pytest.mark.covers("S3.14")
def test_an_add_wakes_it(service: Service, client: SeedClient) -> None:
    later = waiting(service, client)
    client.add(seeds("a"))
    assert keys(later.answer()) == ["a"]


@on_rocks
@pytest.mark.covers("S3.14")
def test_the_time_of_a_seed_wakes_it(service: Service, client: SeedClient) -> None:
    soon = int(service.clock.time() * 1000) + 5000
    client.add(seeds("soon", active_at=soon))
    later = waiting(service, client)
    service.clock.advance(4.9)
    assert later.waits
    service.clock.advance(0.1)
    assert keys(later.answer()) == ["soon"]


@pytest.mark.slow("2 s")
@on_rocks
@pytest.mark.parametrize("way", ["give back", "failure", "expiry"])
def test_what_is_pending_again_wakes_it(
    service: Service, client: SeedClient, client_of: MakeClient, frontier: Frontier, way: str
) -> None:
    client.add(seeds("a"))
    lease = client.lease(1, seconds=10)
    later = waiting(service, client_of(frontier, owner="w2"))
    if way == "give back":
        client.give_back(lease.generation)
    elif way == "failure":
        client.finish(ended(lease, SeedOutcome.FAILURE))
    else:
        # More than it takes to answer the calls that were there before.
        service.clock.advance(20)
    assert [(one.key, one.retry) for one in later.answer().seeds] == [("a", way != "give back")]


@on_rocks
def test_who_has_waited_longest_comes_first(
    service: Service, client_of: MakeClient, frontier: Frontier, client: SeedClient
) -> None:
    waits = [waiting(service, client_of(frontier, f"w{n}"), n + 1) for n in range(3)]
    client.add(seeds("a", "b"))
    assert [keys(later.answer()) for later in waits[:2]] == [["a"], ["b"]]
    assert waits[2].waits
    client.add(seeds("c"))
    assert keys(waits[2].answer()) == ["c"]
    generations = [later.answer().generation for later in waits]
    assert all(one < next_one for one, next_one in pairwise(generations))


@pytest.mark.slow("1 s")
@on_rocks
def test_an_empty_answer_comes_at_the_end(service: Service, client: SeedClient) -> None:
    due = int(service.clock.time() * 1000) + 3_600_000
    client.add(seeds("later", active_at=due))
    later = waiting(service, client)
    service.clock.advance(29.9)
    assert later.waits
    service.clock.advance(0.2)
    assert (later.answer().seeds, later.answer().next_due) == ([], due)


@pytest.mark.slow("1 s")
@on_rocks
def test_who_asks_again_waits_once(
    service: Service, client: SeedClient, asker: Broker, frontier: Frontier
) -> None:
    call = LeaseSeeds(
        frontier=frontier.pk, token=token(frontier), owner="w1", wait_seconds=30, limit=1, call="c1"
    )
    with pytest.raises(TimeoutError):
        ask(asker, call, timeout=0.5)
    assert len(service.daemon.long_poll) == 1
    later = Later(partial(ask, asker, msgspec.structs.replace(call, again=True)))
    until(lambda: service.broker.depth(topology.SEEDS.name).unacked == 1, "the first has gone")
    client.add(seeds("a", "b"))
    assert keys(later.answer()) == ["a"]
    # None was leased to the one that nobody listens to.
    assert service.store.pending(frontier.pk) == 1


@on_rocks
@pytest.mark.covers("S3.18")
def test_a_stop_answers_it(service: Service, client: SeedClient) -> None:
    later = waiting(service, client)
    service.stop()
    assert later.answer().seeds == []


def test_what_another_process_adds_is_found(
    service: Service, client: SeedClient, frontier: Frontier, store_url: str
) -> None:
    if not store_url.startswith("postgres"):
        # The store has one owner.
        return
    later = waiting(service, client)
    other = open_store(store_url)
    now = int(service.clock.time() * 1000)
    other.add(frontier.pk, frontier.rules().resolve_all(seeds("a")), now=now)  # type: ignore[arg-type]
    other.close()
    service.clock.advance(1.1)
    assert keys(later.answer()) == ["a"]


@on_rocks
def test_many_that_wait_do_not_stop_the_others(
    service: Service,
    client: SeedClient,
    client_of: MakeClient,
    frontier: Frontier,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service_calls, "MAX_HELD", 2)
    waits = [waiting(service, client_of(frontier, f"w{n}"), n + 1) for n in range(4)]
    # Two are acknowledged: they take no place of the calls that may be in hand.
    until(lambda: service.broker.depth(topology.SEEDS.name).unacked == 2, "two are acknowledged")
    client.add(seeds("a", "b", "c", "d"))
    assert sorted(key for later in waits for key in keys(later.answer())) == ["a", "b", "c", "d"]
    until(lambda: service.broker.depth(topology.SEEDS.name).unacked == 0, "all are acknowledged")
