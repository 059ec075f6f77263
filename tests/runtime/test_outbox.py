"""The outbox with a real broker file: what is committed is announced, under one id."""

from __future__ import annotations

from concurrent.futures import Future
from datetime import datetime, timedelta

import pytest
from django.db import transaction
from django.utils import timezone

from apps.runtime.models import DeadLetter, OutboxMessage
from apps.runtime.services import enqueue, relay, relay_outbox, requeue_dead_letter
from apps.runtime.services.relay import BATCH_BYTES, CLAIM_SECONDS, MOST_ATTEMPTS
from yardkit import topology
from yardkit.broker import Broker, BrokerError, BrokerUnavailable, Delivery, Outgoing, QueueSpec
from yardkit.outage import Outage
from yardkit.protocol import RunQueued, decode

pytestmark = pytest.mark.django_db

KEY = topology.RUNNERS.name


def read(broker: Broker, queue: str = KEY) -> list[Delivery]:
    """What waits in the queue; taken out of it."""
    subscription = broker.subscribe(queue)
    found: list[Delivery] = []
    while batch := subscription.take(100, timeout=0.5 if not found else 0.1):
        subscription.ack(batch)
        found += batch
    subscription.close()
    return found


def test_a_message_reaches_its_queue_with_the_id_of_its_row(broker: Broker) -> None:
    message_id = enqueue(key=KEY, body=RunQueued(run=7), headers={"project": 3}, ttl_seconds=60)

    assert relay_outbox(broker) == 1

    (delivery,) = read(broker)
    assert decode(delivery.body) == RunQueued(run=7)
    assert delivery.message_id == message_id
    assert delivery.headers["project"] == 3
    assert not OutboxMessage.objects.exists()
    assert relay_outbox(broker) == 0


def test_what_is_rolled_back_is_never_said(broker: Broker) -> None:
    with transaction.atomic():
        enqueue(key=KEY, body=b"x")
        transaction.set_rollback(True)
    assert relay_outbox(broker) == 0
    assert read(broker) == []


def test_messages_keep_their_order_and_a_batch_its_limit(broker: Broker) -> None:
    for number in range(5):
        enqueue(key=KEY, body=str(number).encode())
    assert relay_outbox(broker, limit=3) == 3
    assert relay_outbox(broker, limit=3) == 2
    assert [delivery.body for delivery in read(broker)] == [b"0", b"1", b"2", b"3", b"4"]


def test_large_bodies_go_in_several_batches(broker: Broker) -> None:
    body = b"x" * (BATCH_BYTES // 2 + 1)
    for _ in range(3):
        enqueue(key=KEY, body=body)
    assert relay_outbox(broker) == 3
    assert [len(delivery.body) for delivery in read(broker)] == [len(body)] * 3


def test_what_no_queue_wants_is_kept_with_the_reason_and_holds_up_nobody(broker: Broker) -> None:
    now = timezone.now()
    enqueue(key="nobody.reads.this", body=b"lost?")
    enqueue(key=KEY, body=b"fine")

    assert relay_outbox(broker, now=now) == 1

    kept = OutboxMessage.objects.get()
    assert kept.attempts == 1
    assert "nobody.reads.this" in kept.error
    assert kept.next_try_at is not None
    assert kept.next_try_at > now
    assert relay_outbox(broker, now=now) == 0, "not before its time"

    broker.declare(QueueSpec("nobody.reads.this"))
    assert relay_outbox(broker, now=kept.next_try_at) == 1
    assert [delivery.body for delivery in read(broker, "nobody.reads.this")] == [b"lost?"]


def test_the_pauses_between_tries_grow_to_a_limit(broker: Broker) -> None:
    enqueue(key="nobody.reads.this", body=b"x")
    now = timezone.now()
    pauses = []
    for _ in range(11):
        relay_outbox(broker, now=now)
        due: datetime | None = OutboxMessage.objects.get().next_try_at
        assert due is not None
        pauses.append((due - now).total_seconds())
        now = due
    assert pauses[:4] == [1, 2, 4, 8]
    assert pauses[-1] == 300


def test_what_nobody_wants_for_an_hour_waits_for_a_person_instead(broker: Broker) -> None:
    enqueue(key="nobody.reads.this", body=b"x", message_id="m1", headers={"color": "red"})
    OutboxMessage.objects.update(attempts=MOST_ATTEMPTS - 1)

    assert relay_outbox(broker) == 0

    assert not OutboxMessage.objects.exists()
    letter = DeadLetter.objects.get()
    assert (letter.message_id, letter.queue, bytes(letter.body)) == (
        "m1",
        "nobody.reads.this",
        b"x",
    )
    assert "20 tries" in letter.reason
    broker.declare(QueueSpec("nobody.reads.this"))
    requeue_dead_letter(letter=letter, actor_label="ops")
    assert relay_outbox(broker) == 1
    (delivery,) = read(broker, "nobody.reads.this")
    assert (delivery.message_id, delivery.headers["color"]) == ("m1", "red")


def test_an_outage_leaves_the_pause_of_what_was_refused_before(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueue(key="nobody.reads.this", body=b"x")
    enqueue(key=KEY, body=b"y")
    monkeypatch.setattr(relay, "BATCH_BYTES", 1)
    publish, calls = broker.publish, []

    def second_fails(messages: list[Outgoing]) -> Future[None]:
        calls.append(messages)
        if len(calls) > 1:
            raise BrokerUnavailable("gone")
        return publish(messages)

    monkeypatch.setattr(broker, "publish", second_fails)
    now = timezone.now()
    with pytest.raises(BrokerUnavailable):
        relay_outbox(broker, now=now)
    refused, untried = OutboxMessage.objects.order_by("id")
    assert (refused.attempts, refused.next_try_at) == (1, now + timedelta(seconds=1))
    assert (untried.attempts, untried.next_try_at) == (0, None)


def test_without_a_broker_everything_stays_due(broker: Broker) -> None:
    enqueue(key=KEY, body=b"x")
    broker.close()
    with pytest.raises(BrokerError):
        relay_outbox(broker)
    kept = OutboxMessage.objects.get()
    assert kept.next_try_at is None
    assert kept.attempts == 0


def test_a_claimed_message_comes_back_when_its_relay_died(broker: Broker) -> None:
    now = timezone.now()
    enqueue(key=KEY, body=b"x")
    # As left behind by a relay that was killed after its claim.
    OutboxMessage.objects.update(next_try_at=now + timedelta(seconds=CLAIM_SECONDS))
    assert relay_outbox(broker, now=now) == 0
    assert relay_outbox(broker, now=now + timedelta(seconds=CLAIM_SECONDS)) == 1


def test_a_wake_up_that_outlived_its_time_is_not_sent(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    message_id = enqueue(key=KEY, body=b"old", ttl_seconds=60)
    assert relay_outbox(broker, now=timezone.now() + timedelta(seconds=61)) == 0
    assert not OutboxMessage.objects.exists()
    assert read(broker) == []
    assert message_id in caplog.text


def test_the_same_id_waits_once_for_the_same_queue() -> None:
    for key in (KEY, KEY, topology.STATISTICS.name):
        enqueue(key=key, body=b"x", message_id="m1")
    assert sorted(OutboxMessage.objects.values_list("key", flat=True)) == [
        KEY,
        topology.STATISTICS.name,
    ]


@pytest.mark.parametrize(
    "bad",
    [
        {"key": "k" * 256},
        {"key": KEY, "headers": {"h": object()}},
        {"key": KEY, "ttl_seconds": -1.0},
        {"key": KEY, "priority": 999},
    ],
)
def test_what_no_broker_could_carry_is_refused_at_once(bad: dict[str, object]) -> None:
    with pytest.raises((TypeError, ValueError)):
        enqueue(body=b"x", **bad)  # type: ignore[arg-type]
    assert not OutboxMessage.objects.exists()


def test_a_row_no_broker_could_carry_holds_up_nobody(broker: Broker) -> None:
    OutboxMessage.objects.create(message_id="bad", key=KEY, body=b"x", headers={"h": [1]})
    enqueue(key=KEY, body=b"fine")
    assert relay_outbox(broker) == 1
    assert [delivery.body for delivery in read(broker)] == [b"fine"]
    assert "plain value" in OutboxMessage.objects.get().error


def test_an_outbox_another_process_holds_says_nothing_of_the_broker(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "_outage", Outage(relay.logger, "outbox relay"))
    with caplog.at_level("INFO"):
        relay._outage.failed(BrokerUnavailable("gone"))
        # Nothing is due here: what there is has been claimed by somebody else.
        assert relay._relay_all() is None
        relay._outage.failed(BrokerUnavailable("still gone"))
    assert caplog.messages == ["outbox relay fails and is retried: gone"]
