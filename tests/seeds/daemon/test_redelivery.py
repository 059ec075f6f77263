"""Calls that come a second time, because whoever had them first is gone."""

from __future__ import annotations

import time

import pytest

from apps.seeds.models import Frontier
from tests.seeds.daemon.call_helpers import Later, ask, ended, keys, refused, seeds, token, until
from tests.seeds.daemon.conftest import Service, on_both_brokers, on_rocks
from yardkit import topology
from yardkit.broker import Broker
from yardkit.protocol import AnyMessage, LeaseSeeds
from yardkit.seeds import SeedClient

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.covers("S3.15", "S3.16")]


def taken_by_another(service: Service, asker: Broker, call: AnyMessage) -> Later:
    """As if a service had died with this call in its hands. Nobody serves afterwards."""
    service.stop()
    asked = Later(lambda: ask(asker, call))
    other = asker.subscribe(topology.SEEDS.name, prefetch=1)
    deliveries = other.take(1, 10.0)
    assert len(deliveries) == 1
    other.requeue(deliveries)
    other.close()
    return asked


@pytest.mark.slow("1 s")
@on_both_brokers
@on_rocks
def test_what_was_answered_perhaps_leases_nothing_anew(
    service: Service, client: SeedClient, asker: Broker, frontier: Frontier
) -> None:
    """It may have been told that there is nothing; a lease would go to nobody then."""
    client.add(seeds("a", "b"))
    call = LeaseSeeds(frontier=frontier.pk, token=token(frontier), owner="w1", call="c1")
    asked = taken_by_another(service, asker, call)
    service.start()
    answer = asked.answer()
    assert refused(answer) == "ask_again"
    assert answer.retry_seconds > 0
    (segment,) = service.store.segments(frontier.pk)
    assert (segment.books.pending, segment.books.leased) == (2, 0)
    # Asked once more, by whoever still waits.
    assert keys(ask(asker, call)) == ["a", "b"]


@pytest.mark.slow("3 s")
@on_rocks
def test_what_waited_for_a_service_that_stood_still_leases_nothing_anew(
    service: Service,
    client: SeedClient,
    asker: Broker,
    frontier: Frontier,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever asked may have asked again, and another service has answered."""
    monkeypatch.setattr("apps.seeds.daemon.service.STILL_SECONDS", 0.3)
    service.stop()
    service.start()
    client.add(seeds("a", "b"))
    service.pause()
    call = LeaseSeeds(frontier=frontier.pk, token=token(frontier), owner="w1", call="c1")
    asked = Later(lambda: ask(asker, call))
    until(lambda: service.broker.depth(topology.SEEDS.name).unacked == 1, "the call has come")
    # The standstill itself is what is tried.
    time.sleep(0.4)
    service.resume()
    assert refused(asked.answer()) == "ask_again"
    (segment,) = service.store.segments(frontier.pk)
    assert (segment.books.pending, segment.books.leased) == (2, 0)
    # Asked a little later, by whoever still waits.
    client._patience = 20.0
    assert keys(client.lease(5)) == ["a", "b"]


@pytest.mark.slow("1 s")
@on_rocks
def test_what_was_leased_is_handed_over(
    service: Service, client: SeedClient, asker: Broker, frontier: Frontier
) -> None:
    client.add(seeds("a", "b"))
    call = LeaseSeeds(frontier=frontier.pk, token=token(frontier), owner="w1", call="c1")
    first = ask(asker, call)
    asked = taken_by_another(service, asker, call)
    service.start()
    second = asked.answer()
    assert (second.generation, keys(second)) == (first.generation, ["a", "b"])
    assert {one.code for one in client.finish(ended(second)).answers} == {"finished"}


@pytest.mark.slow("1 s")
def test_a_client_asks_on_by_itself(
    service: Service, client: SeedClient, asker: Broker, frontier: Frontier
) -> None:
    client.add(seeds("a"))
    client._patience = 20.0
    service.stop()
    leased = Later(lambda: client.lease(1))
    other = asker.subscribe(topology.SEEDS.name, prefetch=1)
    other.requeue(other.take(1, 10.0))
    other.close()
    service.start()
    assert keys(leased.answer()) == ["a"]
