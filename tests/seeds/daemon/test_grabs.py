"""One seed before all others, and what came of it (seed S3.20)."""

from __future__ import annotations

from functools import partial

import pytest

from apps.seeds.models import Frontier
from tests.seeds.daemon.call_helpers import Later, ended, keys, refused, seeds, token, until
from tests.seeds.daemon.conftest import Service, on_both_brokers, on_rocks
from yardkit import topology
from yardkit.broker import Broker, Outgoing, QueueSpec
from yardkit.protocol import (
    GrabSeed,
    Seed,
    SeedGrabbed,
    SeedOutcome,
    SeedsLeased,
    SeedState,
    decode,
    encode,
)
from yardkit.protocol.seeds import GRAB, MAX_RESULT_BYTES
from yardkit.seeds import CallRefused, SeedClient

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.covers("S3.20")]

NEVER = 30.0


def grabbing(client: SeedClient, data: str, **others: bool) -> Later:
    def work() -> SeedGrabbed | CallRefused | None:
        try:
            return client.grab(Seed(data), timeout=NEVER, **others)
        except CallRefused as error:
            return error

    return Later(work)


def leased(client: SeedClient) -> SeedsLeased:
    """The next lease that has a seed."""
    return client.lease(1, wait_seconds=20)


def asker_of(lease: SeedsLeased) -> str:
    ext = lease.seeds[0].ext
    assert ext is not None
    grab: str = ext[GRAB]
    return grab


@on_both_brokers
def test_it_comes_before_all_others_and_its_result_is_answered(
    service: Service, client: SeedClient
) -> None:
    client.add(seeds("first", "second"))
    later = grabbing(client, "now")
    until(lambda: client.look_up(Seed("now")).known, "the seed is added")
    lease = leased(client)
    assert keys(lease) == ["now"]
    told = ended(lease, grab=asker_of(lease), result={"title": "shop", "prices": [1.5, None]})
    client.finish(told)
    answer = later.answer()
    assert (answer.key, answer.state) == ("now", SeedState.SUCCEEDED)
    assert answer.result == {"title": "shop", "prices": [1.5, None]}


@on_rocks
def test_a_try_that_fails_is_no_end(service: Service, client: SeedClient) -> None:
    later = grabbing(client, "now")
    for _ in range(3):
        assert later.waits
        lease = leased(client)
        client.finish(ended(lease, SeedOutcome.FAILURE, grab=asker_of(lease)))
    assert later.answer().state == SeedState.FAILED


def test_known_seeds_are_refused_unless_again(service: Service, client: SeedClient) -> None:
    client.add(seeds("a"))
    with pytest.raises(CallRefused) as caught:
        client.grab(Seed("a"), timeout=NEVER)
    assert caught.value.code == "seed_in_use"
    lease = leased(client)
    with pytest.raises(CallRefused) as caught:
        client.grab(Seed("a"), timeout=NEVER, again=True)
    assert caught.value.code == "seed_in_use"
    client.finish(ended(lease))
    with pytest.raises(CallRefused) as caught:
        client.grab(Seed("a"), timeout=NEVER)
    assert caught.value.code == "seed_known"
    later = grabbing(client, "a", again=True)
    lease = leased(client)
    client.finish(ended(lease, SeedOutcome.IGNORED, grab=asker_of(lease)))
    assert later.answer().state == SeedState.IGNORED


@pytest.mark.slow("2 s")
@on_rocks
@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (Seed(""), "empty_data"),
        (Seed("half \ud83d"), "binary_data"),
        (Seed("later", active_at=1_900_000_000_000), "bad_time"),
    ],
    ids=["empty", "half", "later"],
)
def test_what_cannot_be_a_seed_is_refused(
    service: Service, client: SeedClient, bad: Seed, code: str
) -> None:
    with pytest.raises(CallRefused) as caught:
        client.grab(bad, timeout=NEVER)
    assert caught.value.code == code


@on_rocks
def test_a_result_that_is_too_large_is_said(service: Service, client: SeedClient) -> None:
    later = grabbing(client, "now")
    lease = leased(client)
    client.finish(ended(lease, grab=asker_of(lease), result="x" * MAX_RESULT_BYTES))
    answer = later.answer()
    assert isinstance(answer, CallRefused)
    assert (answer.code, "succeeded" in str(answer)) == ("result_too_large", True)


@on_rocks
def test_a_result_that_cannot_be_sent_ends_the_seed_all_the_same(
    service: Service, client: SeedClient
) -> None:
    later = grabbing(client, "now")
    lease = leased(client)
    client.finish(ended(lease, grab=asker_of(lease), result=object()))
    assert (later.answer().state, later.answer().result) == (SeedState.SUCCEEDED, None)


@on_rocks
def test_a_seed_writes_to_nobody_but_askers(
    service: Service, client: SeedClient, asker: Broker
) -> None:
    asker.declare(QueueSpec("agent.victim"))
    client.add(seeds("a"))
    client.finish(ended(client.lease(1), grab=f"agent.victim {'0' * 32}", result="attack"))
    client.add(seeds("b"))
    assert asker.depth("agent.victim").ready == 0


@pytest.mark.slow("1 s")
@on_rocks
def test_the_same_grab_twice_is_one(
    service: Service, client: SeedClient, asker: Broker, frontier: Frontier
) -> None:
    queue = "reply.test"
    asker.declare(QueueSpec(queue, durable=False))
    call = encode(GrabSeed(frontier=frontier.pk, token=token(frontier), seed=Seed("now")))
    same = Outgoing(call, key=topology.SEEDS.name, reply_to=queue, correlation_id="ab" * 16)
    asker.publish([same, same]).result(20)
    lease = leased(client)
    client.finish(ended(lease, grab=asker_of(lease)))
    with_answer = asker.subscribe(queue)
    until(partial(_any, with_answer, found := []), "the answer is there")
    assert [type(one) for one in found] == [SeedGrabbed]
    other = Outgoing(call, key=topology.SEEDS.name, reply_to=queue, correlation_id="cd" * 16)
    asker.publish([other]).result(20)
    found.clear()
    until(partial(_any, with_answer, found), "the other answer is there")
    assert [refused(one) for one in found] == ["seed_known"]


def _any(subscription: object, found: list[object]) -> bool:
    found += [decode(one.body) for one in subscription.take(10)]  # type: ignore[attr-defined]
    return bool(found)
