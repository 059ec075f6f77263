"""What is changed about a frontier counts for the next calls."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest

from apps.seeds.models import Frontier
from apps.seeds.stores.operations import DropSegment, ShowSegments
from tests.seeds.daemon.call_helpers import Later, ask, ended, keys, refused, seeds, token, until
from tests.seeds.daemon.conftest import MakeClient, Service, on_rocks
from yardkit.broker import Broker
from yardkit.protocol import FinishSeeds, ManageSeeds, Seed
from yardkit.seeds import CallRefused, SeedClient

pytestmark = [pytest.mark.django_db(transaction=True), on_rocks]


def change(service: Service, frontier: Frontier, **fields: object) -> None:
    """As the control plane does it; the service has looked since."""
    with service.resting():
        Frontier.objects.filter(pk=frontier.pk).update(**fields)
    service.clock.advance(0.6)
    expected = Frontier.objects.get(pk=frontier.pk)

    def seen() -> bool:
        known = {one.frontier: one for one in service.daemon.frontiers.all()}[frontier.pk]
        return (known.is_paused, known.is_frozen, known.lease_seconds) == (
            expected.is_paused,
            expected.is_frozen,
            expected.lease_seconds,
        ) and known.rules.max_retry == expected.max_retry

    until(seen, "the service sees the change")


def code_of(work: object) -> str:
    with pytest.raises(CallRefused) as caught:
        work()  # type: ignore[operator]
    return caught.value.code


@pytest.mark.slow("1 s")
def test_a_new_frontier_is_known_at_its_first_call(
    service: Service, client_of: MakeClient, frontier: Frontier
) -> None:
    service.clock.advance(0.2)
    with service.resting():
        other = Frontier.objects.create(project=frontier.project, name="other")
    assert [one.code for one in client_of(other).add(seeds("a"))] == ["new"]
    with service.resting():
        Frontier.objects.filter(pk=other.pk).delete()
    service.clock.advance(0.6)
    until(lambda: len(service.daemon.frontiers.all()) == 1, "the service sees that it is gone")
    assert code_of(partial(client_of(other).add, seeds("b"))) == "unknown_frontier"


def test_rules_are_hot(service: Service, client: SeedClient, frontier: Frontier) -> None:
    change(service, frontier, max_retry=7, keys="page", lease_seconds=60)
    assert [one.code for one in client.add(seeds("a#1", "a#2"))] == ["new", "duplicate"]
    lease = client.lease(1)
    assert (lease.seeds[0].max_retry, lease.seeds[0].key) == (7, "a")
    assert lease.deadline == int(service.clock.time() * 1000) + 60_000


@pytest.mark.slow("1 s")
def test_a_paused_one_takes_seeds_and_hands_out_none(
    service: Service, client: SeedClient, frontier: Frontier
) -> None:
    change(service, frontier, is_paused=True)
    client.add(seeds("a"))
    assert client.lease(1).seeds == []
    later = Later(partial(client.lease, 1, wait_seconds=30))
    until(lambda: len(service.daemon.long_poll), "the lease waits")
    change(service, frontier, is_paused=False)
    assert keys(later.answer()) == ["a"]


@pytest.mark.slow("1 s")
def test_a_frozen_one_takes_and_gives_nothing_but_ends_what_is_out(
    service: Service, client: SeedClient, asker: Broker, frontier: Frontier
) -> None:
    client.add(seeds("a", "b"))
    lease = client.lease(1)
    change(service, frontier, is_frozen=True)
    assert code_of(partial(client.add, seeds("c"))) == "frozen"
    assert code_of(partial(client.lease, 1)) == "frozen"
    assert code_of(partial(client.grab, Seed("d"), timeout=20)) == "frozen"
    call = FinishSeeds(
        frontier=frontier.pk,
        token=token(frontier),
        owner="w1",
        finishes=ended(lease),
        found=seeds("e"),
    )
    answer = ask(asker, call)
    assert (refused(answer), answer.retry_seconds) == ("frozen", 1.0)
    # Without new ones: nothing of the refused call was done.
    assert [one.code for one in client.finish(ended(lease)).answers] == ["finished"]
    change(service, frontier, is_frozen=False)
    assert [one.code for one in client.add(seeds("c", "d", "e"))] == ["new"] * 3


def test_one_whose_plug_in_is_missing_refuses_and_others_work(
    service: Service, client: SeedClient, client_of: MakeClient, frontier: Frontier
) -> None:
    service.clock.advance(0.2)
    with service.resting():
        other = Frontier.objects.create(project=frontier.project, name="other", keys="gone")
    assert code_of(partial(client_of(other).add, seeds("a"))) == "bad_setting"
    assert [one.code for one in client.add(seeds("a"))] == ["new"]


def test_managing_wants_its_own_token_and_sees_every_change(
    service: Service, client: SeedClient, manager: SeedClient, frontier: Frontier
) -> None:
    client.add(seeds("a"))
    show = msgspec.Raw(msgspec.msgpack.encode(ShowSegments()))
    assert code_of(partial(client.manage, show)) == "wrong_token"
    assert code_of(partial(manager.add, seeds("b"))) == "wrong_token"
    assert msgspec.msgpack.decode(manager.manage(show))[0]["books"]["pending"] == 1
    with service.resting():
        Frontier.objects.filter(pk=frontier.pk).update(is_frozen=True)
    manager.manage(show)
    # No time has passed.
    assert code_of(partial(client.add, seeds("b"))) == "frozen"


def test_operations_are_refused_with_their_code(
    service: Service, manager: SeedClient, asker: Broker, frontier: Frontier
) -> None:
    drop = msgspec.Raw(msgspec.msgpack.encode(DropSegment(86_400_000)))
    assert code_of(partial(manager.manage, drop)) == "unknown_segment"
    assert code_of(partial(manager.manage, msgspec.Raw(b"\x01"))) == "bad_call"
    call = ManageSeeds(frontier=frontier.pk, token=token(frontier), operation=drop)
    assert refused(ask(asker, call)) == "wrong_token"
