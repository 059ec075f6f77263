"""RabbitMQ outbound: queue declaration, priorities, and errors of the broker."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

import pika
import pytest

from apps.routing.engine import rules
from apps.routing.engine.outbounds import registry
from apps.routing.engine.outbounds.base import DELIVERED, SendStatus, Settings
from tests.plugins.stores import rabbitmqctl
from tests.routing.engine.outbounds.targets import RabbitTarget, sent

pytestmark = pytest.mark.services


@pytest.fixture
def target(rabbit_vhost: str) -> Iterator[RabbitTarget]:
    with contextlib.closing(RabbitTarget(rabbit_vhost)) as made:
        yield made


def queues_named_dead(target: RabbitTarget) -> bool:
    """Return whether the platform's dead-letter queue exists."""
    channel = target.connection.channel()
    try:
        channel.queue_declare("dead", passive=True)
    except pika.exceptions.ChannelClosedByBroker:
        return False
    channel.close()
    return True


def test_a_missing_queue_is_made_durable_and_nothing_else(target: RabbitTarget) -> None:
    had = queues_named_dead(target)
    outbound = target.make()
    assert outbound.send([sent(1)]) == [DELIVERED]
    # The broker would refuse another durability.
    assert target.channel.queue_declare(target.queue, durable=True).method.message_count == 1
    assert queues_named_dead(target) is had
    method, properties, _ = target.channel.basic_get(target.queue, auto_ack=True)
    assert method is not None
    assert properties.delivery_mode == 2
    assert properties.message_id == "u1"
    assert properties.content_type == "application/json"


def test_a_queue_that_exists_is_used_as_it_is(target: RabbitTarget) -> None:
    target.channel.queue_declare(
        target.queue, durable=True, arguments={"x-queue-type": "quorum", "x-max-length": 1000}
    )
    outbound = target.make(max_priority=9)
    assert outbound.send([sent(1), sent(2)]) == [DELIVERED] * 2
    assert [item["number"] for item in target.take_all(2)] == [1, 2]


def test_a_queue_may_be_somebody_elses_to_make(target: RabbitTarget) -> None:
    outbound = target.make(declare=False)
    outcome = outbound.send([sent(1)])[0]
    assert outcome.verdict is SendStatus.AWAY
    assert target.queue in outcome.reason
    target.channel.queue_declare(target.queue, durable=True)
    assert outbound.send([sent(2)]) == [DELIVERED]


def test_a_queue_that_is_deleted_is_made_again(target: RabbitTarget) -> None:
    outbound = target.make()
    assert outbound.send([sent(1)]) == [DELIVERED]
    target.channel.queue_delete(target.queue)
    assert [one.code for one in outbound.send([sent(2), sent(3)])] == ["no_queue"] * 2
    assert outbound.send([sent(4)]) == [DELIVERED]
    assert [item["number"] for item in target.take_all(1)] == [4]


@pytest.mark.covers("S2.29")
def test_priorities_are_scaled_to_those_of_the_queue(target: RabbitTarget) -> None:
    outbound = target.make(max_priority=10)
    batch = [sent(number, priority=one) for number, one in enumerate([0, 1000, 2000, 9000, -3])]
    assert outbound.send([*batch, sent(5, priority=1000)]) == [DELIVERED] * 6
    found = []
    for _ in range(6):
        _, properties, body = target.channel.basic_get(target.queue, auto_ack=True)
        found.append((properties.priority or 0, body.partition(b'"number":')[2][:1]))
    assert found == [(10, b"2"), (10, b"3"), (5, b"1"), (5, b"5"), (0, b"0"), (0, b"4")]


def test_priorities_that_fit_stay_as_they_are(target: RabbitTarget) -> None:
    rule = rules.Outbound(
        "own", target.cls, init={**target.init(), "max_priority": 9}, priority=2, rt_priority=7
    )
    with contextlib.closing(registry.build(rule, Settings())) as outbound:
        assert outbound.send([sent(1, priority=2), sent(2, priority=7)]) == [DELIVERED] * 2
    got = [target.channel.basic_get(target.queue, auto_ack=True) for _ in range(2)]
    assert [properties.priority for _, properties, _ in got] == [7, 2]


def test_a_full_queue_holds_up_what_it_does_not_take(target: RabbitTarget) -> None:
    arguments = {"x-max-length": 2, "x-overflow": "reject-publish"}
    target.channel.queue_declare(target.queue, durable=True, arguments=arguments)
    outcomes = target.make().send([sent(number) for number in range(4)])
    assert [one.verdict for one in outcomes] == ["delivered", "delivered", "away", "away"]
    assert [one.code for one in outcomes[2:]] == ["unconfirmed"] * 2


def test_a_message_that_the_broker_refuses_fails_alone(
    target: RabbitTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbound = target.make()
    assert outbound.send([sent(0)]) == [DELIVERED]
    # Only a broker with a lower limit refuses a message of ours: a bad life time is refused alike.
    plain = pika.spec.BasicProperties.encode

    def bad_if_marked(properties: pika.BasicProperties) -> list[bytes]:
        if properties.message_id == "u3":
            properties.expiration = "never"
        return list(plain(properties))

    monkeypatch.setattr(pika.spec.BasicProperties, "encode", bad_if_marked)
    outcomes = outbound.send([sent(number) for number in range(1, 6)])
    assert [one.verdict for one in outcomes] == [
        "delivered",
        "delivered",
        "refused",
        "delivered",
        "delivered",
    ]
    assert outcomes[2].code == "refused"
    numbers = set()
    while (item := target.take()) is not None:
        numbers.add(item["number"])
    assert numbers == {0, 1, 2, 4, 5}


def test_a_login_that_is_refused_holds_items_up(target: RabbitTarget) -> None:
    url = target.direct_url.replace("guest:guest@", "guest:hunter2@")
    if url == target.direct_url:
        pytest.skip("the broker of the tests has another login")
    outbound = target.make(url=url)
    for _ in range(2):
        outcome = outbound.send([sent(1)])[0]
        assert outcome.verdict is SendStatus.AWAY
        assert "password" in outcome.reason
        assert "hunter2" not in outcome.reason


@pytest.fixture
def writes_nothing(target: RabbitTarget) -> Iterator[str]:
    """URL of a user without write permission."""
    name, vhost = f"test-{target.queue}", unquote(urlsplit(target.url).path[1:])
    rabbitmqctl("add_user", name, "hunter2")
    try:
        rabbitmqctl("set_permissions", "-p", vhost, name, ".*", "^$", ".*")
        parts = urlsplit(target.url)
        host = parts.netloc.rpartition("@")[2]
        yield parts._replace(netloc=f"{name}:hunter2@{host}").geturl()
    finally:
        rabbitmqctl("delete_user", name)


def test_missing_rights_hold_items_up_and_refuse_none(
    target: RabbitTarget, writes_nothing: str
) -> None:
    target.channel.queue_declare(target.queue, durable=True)
    outcomes = target.make(url=writes_nothing).send([sent(1), sent(2)])
    assert [one.verdict for one in outcomes] == [SendStatus.AWAY] * 2
    assert "ACCESS_REFUSED" in outcomes[0].reason or "access" in outcomes[0].reason
