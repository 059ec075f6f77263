"""Dead letters: from a refusal, through the database, back to the queue they came from."""

from __future__ import annotations

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.runtime.errors import DeadLetterHasNoQueue, DeadLetterResolved
from apps.runtime.models import DeadLetter, OutboxMessage
from apps.runtime.services import (
    drop_dead_letter,
    relay_outbox,
    requeue_dead_letter,
    store_dead_letters,
    subscribe_dead_letters,
)
from apps.runtime.services.dead_letters import HEADER_PROJECT, _letter
from apps.runtime.states import DeadLetterState
from tests.runtime.processes import wait_for
from yardkit.broker import Broker, Delivery, Outgoing, QueueSpec, Subscription
from yardkit.broker.base import HEADER_DIED_AT, HEADER_QUEUE, HEADER_REASON

pytestmark = pytest.mark.django_db

WORK = QueueSpec("work")


@pytest.fixture
def work(broker: Broker) -> Subscription:
    broker.declare(WORK)
    return broker.subscribe(WORK.name)


@pytest.fixture
def dead(broker: Broker) -> Subscription:
    return subscribe_dead_letters(broker)


def publish(broker: Broker, body: bytes = b"poison", **fields: object) -> None:
    message = Outgoing(body=body, key=WORK.name, message_id="m1", **fields)  # type: ignore[arg-type]
    broker.publish([message]).result(10)


def refuse(work: Subscription, reason: str = "no such run") -> Delivery:
    (delivery,) = work.take(1, timeout=10)
    work.dead_letter(delivery, reason)
    return delivery


def store(dead: Subscription, *, at_least: int = 1) -> None:
    taken = 0

    def enough() -> bool:
        nonlocal taken
        taken += store_dead_letters(dead, timeout=0.5)
        return taken >= at_least

    wait_for(enough, "the dead letters are stored")


def make_letter(**fields: object) -> DeadLetter:
    values = {
        "message_id": "m1",
        "queue": WORK.name,
        "body": b"x",
        "body_size": 1,
        "died_at": timezone.now(),
        **fields,
    }
    return DeadLetter.objects.create(**values)


def test_round_trip(broker: Broker, work: Subscription, dead: Subscription) -> None:
    publish(broker, headers={HEADER_PROJECT: 5, "color": "red"})
    refuse(work, "the run 7 does not exist")
    store(dead)

    letter = DeadLetter.objects.get()
    assert letter.queue == WORK.name
    assert letter.reason == "the run 7 does not exist"
    assert bytes(letter.body) == b"poison"
    assert (letter.body_size, letter.project, letter.message_id) == (6, 5, "m1")
    assert letter.headers == {HEADER_PROJECT: 5, "color": "red"}
    assert abs((letter.died_at - letter.stored_at).total_seconds()) < 60

    requeue_dead_letter(letter=letter, actor_label="ops")
    relay_outbox(broker)
    (again,) = work.take(1, timeout=10)
    work.ack([again])

    assert (again.body, again.message_id) == (b"poison", "m1")
    assert again.headers["color"] == "red"
    assert HEADER_REASON not in again.headers
    letter.refresh_from_db()
    assert (letter.state, letter.resolved_by) == (DeadLetterState.REQUEUED, "ops")
    assert not OutboxMessage.objects.exists()


def test_one_that_dies_again_is_a_new_letter(
    broker: Broker, work: Subscription, dead: Subscription
) -> None:
    publish(broker)
    refuse(work, "first")
    store(dead)
    requeue_dead_letter(letter=DeadLetter.objects.get(), actor_label="ops")
    relay_outbox(broker)
    refuse(work, "second")
    store(dead)
    assert list(DeadLetter.objects.order_by("id").values_list("state", "reason")) == [
        ("requeued", "first"),
        ("held", "second"),
    ]


def test_one_that_comes_twice_is_stored_once(
    broker: Broker, work: Subscription, dead: Subscription
) -> None:
    publish(broker)
    refuse(work)
    (delivery,) = dead.take(1, timeout=10)
    # Stored and committed, and then the process is killed before the ack.
    _letter(delivery, timezone.now()).save()
    dead.requeue([delivery])
    store(dead)
    assert DeadLetter.objects.count() == 1
    assert store_dead_letters(dead, timeout=0.2) == 0, "it was acknowledged"


def test_only_one_decision_counts() -> None:
    letter = make_letter()
    same = DeadLetter.objects.get()
    drop_dead_letter(letter=letter, actor_label="first")
    for decide in (drop_dead_letter, requeue_dead_letter):
        with pytest.raises(DeadLetterResolved):
            decide(letter=same, actor_label="second")
    letter.refresh_from_db()
    assert (letter.state, letter.resolved_by) == (DeadLetterState.DROPPED, "first")
    assert not OutboxMessage.objects.exists()


def test_what_came_from_nowhere_cannot_go_back() -> None:
    letter = make_letter(queue="")
    with pytest.raises(DeadLetterHasNoQueue):
        requeue_dead_letter(letter=letter, actor_label="ops")
    letter.refresh_from_db()
    assert letter.state == DeadLetterState.HELD


def test_two_copies_of_one_message_go_back_to_both_queues() -> None:
    for queue in ("a", "b"):
        requeue_dead_letter(letter=make_letter(queue=queue), actor_label="ops")
    assert set(OutboxMessage.objects.values_list("message_id", "key")) == {("m1", "a"), ("m1", "b")}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {HEADER_DIED_AT: "yesterday", HEADER_QUEUE: 5, HEADER_REASON: 1.5},
        {HEADER_DIED_AT: float("nan"), "n": float("inf"), "nul\0": "a\0b", "s": "\ud800"},
        {HEADER_DIED_AT: 1e300, HEADER_REASON: "x" * 5000, HEADER_PROJECT: -1},
        {HEADER_DIED_AT: True, HEADER_PROJECT: True, HEADER_QUEUE: "q\0"},
        {HEADER_PROJECT: 2**80},
    ],
)
def test_the_strangest_letter_can_be_stored_and_sent_back(
    headers: dict[str, str | int | float | bool],
) -> None:
    delivery = Delivery(
        body=b"\0\xff",
        queue="dead",
        exchange="",
        key="k" * 255,
        redelivered=False,
        priority=0,
        message_id="i" * 255,
        reply_to="",
        correlation_id="",
        headers=headers,
        tag=None,
    )
    before = timezone.now()
    letter = _letter(delivery, before)
    letter.save()
    letter.refresh_from_db()
    assert bytes(letter.body) == b"\0\xff"
    assert letter.project is None
    assert letter.died_at == before
    if letter.queue:
        requeue_dead_letter(letter=letter, actor_label="ops")


def test_letters_without_an_id_are_all_kept() -> None:
    deliveries = [
        Delivery(b"same", "dead", "", "", False, 0, "", "", "", {HEADER_DIED_AT: 1.0}, None)
        for _ in range(2)
    ]
    for delivery in deliveries:
        _letter(delivery, timezone.now()).save()
    assert DeadLetter.objects.count() == 2


def test_a_backlog_is_stored_in_parts(
    broker: Broker, work: Subscription, dead: Subscription
) -> None:
    broker.publish(
        [Outgoing(body=b"x", key=WORK.name, message_id=str(number)) for number in range(50)]
    ).result(10)
    taken = 0
    while taken < 50:
        for delivery in work.take(50, timeout=10):
            work.dead_letter(delivery, "no")
            taken += 1
    store(dead, at_least=50)
    assert DeadLetter.objects.count() == 50


@pytest.mark.parametrize(
    "fields",
    [{"state": "lost"}, {"state": DeadLetterState.DROPPED}, {"resolved_at": timezone.now()}],
)
def test_the_database_holds_the_states_together(fields: dict[str, object]) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        make_letter(**fields)
