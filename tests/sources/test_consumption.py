"""Consuming, peeking and leasing records of a queue."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from apps.projects.models import Project
from apps.runtime.services import shared_broker
from apps.sources.errors import (
    BrokerUnreachable,
    NoSuchLease,
    NoSuchQueue,
    QueueNeeded,
    QueueOwnedElsewhere,
)
from apps.sources.models import HandedRecord, PublishedSpan, RecordQueue
from apps.sources.services.consumption import (
    Record,
    acknowledge,
    consume,
    give_back,
    lease_records,
    peek,
    prune_expired,
)
from apps.sources.services.queues import claim_queue, prune_spans, queue_of_project, queue_size
from tests.access.factories import make_project
from tests.sources.records import broker_at, publish, sourced
from yardkit import failpoints
from yardkit.broker.base import BrokerUnavailable, Outgoing

pytestmark = pytest.mark.django_db


@pytest.fixture(params=["sqlite", pytest.param("rabbitmq", marks=pytest.mark.services)])
def project(request: pytest.FixtureRequest) -> Iterator[Project]:
    fixture = "sqlite_broker_url" if request.param == "sqlite" else "rabbit_vhost"
    with broker_at(request.getfixturevalue(fixture)):
        # Other tests may have left records.
        shared_broker().delete("job_data")
        yield sourced()


def now() -> datetime:
    return datetime.now(UTC)


def numbers(records: list[Record]) -> list[int]:
    return [each.data["n"] for each in records]


def until(wanted: Any, ask: Any) -> Any:
    """Poll ``ask`` until it returns ``wanted``, for a few seconds; return the last result."""
    deadline = time.monotonic() + 10
    while (found := ask()) != wanted and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def die_at(point: str, queue: RecordQueue) -> None:
    """Kill a process that leases all records for a minute at this failpoint."""
    failpoints.configure({"FAILPOINTS": f"{point}=raise"})
    try:
        with pytest.raises(failpoints.FailpointError):
            lease_records(queue=queue, count=100, seconds=60, holder="one", now=now())
    finally:
        failpoints.configure({})


@pytest.mark.covers("S0.34", "S0.36")
def test_consumed_records_are_gone_and_come_in_their_order(project: Project) -> None:
    queue = publish(project, 1, 25)
    assert numbers(consume(queue=queue, count=10, now=now())) == list(range(1, 11))
    assert numbers(consume(queue=queue, count=100, now=now())) == list(range(11, 26))
    assert consume(queue=queue, count=5, now=now()) == []
    assert queue_size(queue=queue, now=now()).live == 0


@pytest.mark.covers("S0.36")
def test_a_look_takes_nothing(project: Project) -> None:
    queue = publish(project, 1, 5)
    assert numbers(peek(queue=queue, count=3, now=now())) == [1, 2, 3]
    assert until(5, lambda: queue_size(queue=queue, now=now()).live) == 5
    assert numbers(peek(queue=queue, count=9, now=now())) == [1, 2, 3, 4, 5]
    assert until([1, 2, 3, 4, 5], lambda: numbers(consume(queue=queue, count=9, now=now())))


@pytest.mark.covers("S0.36")
def test_leased_records_come_back_unless_they_are_acknowledged(project: Project) -> None:
    queue = publish(project, 1, 6)
    mine = lease_records(queue=queue, count=4, seconds=60, holder="one", now=now())
    assert numbers(mine.records) == [1, 2, 3, 4]
    size = queue_size(queue=queue, now=now())
    assert (size.live, size.leased, size.returned) == (2, 4, 0)
    # Leased records go to no other caller.
    other = lease_records(queue=queue, count=9, seconds=60, holder="two", now=now())
    assert numbers(other.records) == [5, 6]
    done = acknowledge(queue=queue, lease=mine.lease, message_ids=["record-2"], now=now())
    assert done == 1
    assert give_back(queue=queue, lease=mine.lease, message_ids=["record-3"], now=now()) == 1
    later = now() + timedelta(seconds=61)
    again = lease_records(queue=queue, count=9, seconds=60, holder="two", now=later)
    assert numbers(again.records) == [1, 3, 4, 5, 6]
    assert set(HandedRecord.objects.values_list("times", flat=True)) == {2}
    # The first lease has expired and its records are leased again.
    with pytest.raises(NoSuchLease):
        acknowledge(queue=queue, lease=mine.lease, now=later)
    assert acknowledge(queue=queue, lease=again.lease, now=later) == 5
    with pytest.raises(NoSuchLease):
        acknowledge(queue=queue, lease=again.lease, now=later)
    assert not HandedRecord.objects.exists()
    assert consume(queue=queue, count=9, now=later) == []


def test_a_deadline_that_is_over_can_be_acknowledged_while_nobody_else_asked(
    project: Project,
) -> None:
    queue = publish(project, 1, 2)
    mine = lease_records(queue=queue, count=2, seconds=1, holder="one", now=now())
    assert acknowledge(queue=queue, lease=mine.lease, now=now() + timedelta(hours=1)) == 2


def test_what_was_given_back_is_consumed_first(project: Project) -> None:
    queue = publish(project, 1, 4)
    mine = lease_records(queue=queue, count=2, seconds=60, holder="one", now=now())
    assert give_back(queue=queue, lease=mine.lease, now=now()) == 2
    assert queue_size(queue=queue, now=now()).live == 4
    assert numbers(peek(queue=queue, count=3, now=now())) == [1, 2, 3]
    assert until(4, lambda: queue_size(queue=queue, now=now()).live) == 4
    assert numbers(consume(queue=queue, count=4, now=now())) == [1, 2, 3, 4]


@pytest.mark.fault
def test_a_process_that_dies_before_the_broker_knows_loses_and_doubles_nothing(
    project: Project,
) -> None:
    queue = publish(project, 1, 3)
    die_at("sources.records_leased", queue)
    # The broker redelivers them although rows exist.
    assert until(3, lambda: queue_size(queue=queue, now=now()).waiting) == 3
    later = now() + timedelta(seconds=61)
    found = lease_records(queue=queue, count=9, seconds=60, holder="two", now=later)
    assert numbers(found.records) == [1, 2, 3]
    assert queue_size(queue=queue, now=later).waiting == 0
    assert acknowledge(queue=queue, lease=found.lease, now=later) == 3


@pytest.mark.fault
@pytest.mark.parametrize("ask", ["lease", "consume"])
def test_copies_that_the_broker_still_has_are_nobodys_second_record(
    project: Project, ask: str
) -> None:
    queue = publish(project, 1, 3)
    die_at("sources.records_leased", queue)
    until(3, lambda: queue_size(queue=queue, now=now()).waiting)
    # The rows are leased, so neither they nor their copies are delivered.
    publish(project, 4, 4)
    assert numbers(peek(queue=queue, count=9, now=now())) == [4]
    until(4, lambda: queue_size(queue=queue, now=now()).waiting)
    later = now() + timedelta(seconds=61)
    # The rows suffice: the broker is not asked and keeps its copies.
    if ask == "lease":
        found = lease_records(queue=queue, count=3, seconds=60, holder="two", now=later)
        assert numbers(found.records) == [1, 2, 3]
        assert acknowledge(queue=queue, lease=found.lease, now=later) == 3
        with pytest.raises(NoSuchLease):
            acknowledge(queue=queue, lease=found.lease, now=later)
    else:
        assert numbers(consume(queue=queue, count=3, now=later)) == [1, 2, 3]
    assert numbers(consume(queue=queue, count=9, now=later)) == [4]
    assert queue_size(queue=queue, now=later).waiting == 0
    assert not HandedRecord.objects.exists()


@pytest.mark.fault
def test_a_process_that_dies_while_somebody_consumes_loses_nothing(project: Project) -> None:
    queue = publish(project, 1, 4)
    mine = lease_records(queue=queue, count=2, seconds=60, holder="one", now=now())
    give_back(queue=queue, lease=mine.lease, now=now())
    failpoints.configure({"FAILPOINTS": "sources.records_consumed=raise"})
    try:
        with pytest.raises(failpoints.FailpointError):
            consume(queue=queue, count=4, now=now())
    finally:
        failpoints.configure({})
    assert until(2, lambda: queue_size(queue=queue, now=now()).waiting) == 2
    later = now() + timedelta(seconds=61)
    assert numbers(consume(queue=queue, count=9, now=later)) == [1, 2, 3, 4]
    assert consume(queue=queue, count=9, now=later + timedelta(seconds=61)) == []


def test_records_whose_acknowledgement_fails_come_once(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = publish(project, 1, 3)
    subscribe = shared_broker().subscribe

    def deaf(*args: Any, **kwargs: Any) -> Any:
        subscription = subscribe(*args, **kwargs)

        def fail(_deliveries: object) -> None:
            raise BrokerUnavailable("gone")

        monkeypatch.setattr(subscription, "ack", fail)
        return subscription

    with monkeypatch.context() as patched:
        patched.setattr(shared_broker(), "subscribe", deaf)
        assert numbers(consume(queue=queue, count=2, now=now())) == [1, 2]
    assert numbers(consume(queue=queue, count=5, now=now())) == [3]
    assert consume(queue=queue, count=5, now=now()) == []


def test_a_record_that_has_changed_is_another_one(project: Project) -> None:
    """With an ``id_field`` it has the message id of the leased one."""
    queue = publish(project, 1, 1)
    mine = lease_records(queue=queue, count=1, seconds=60, holder="one", now=now())
    changed = Outgoing(body=b'{"n": 10}', key=queue.name, message_id="record-1")
    again = Outgoing(body=b'{"n":1}', key=queue.name, message_id="record-1")
    twice = Outgoing(body=mine.records[0].body, key=queue.name, message_id="record-1")
    shared_broker().publish([changed, again, twice]).result(10)
    other = lease_records(queue=queue, count=9, seconds=60, holder="two", now=now())
    # An identical copy is already leased.
    assert [each.body for each in other.records] == [b'{"n": 10}', b'{"n":1}']
    assert acknowledge(queue=queue, lease=other.lease, message_ids=["record-1"], now=now()) == 2
    assert acknowledge(queue=queue, lease=mine.lease, now=now()) == 1


def test_what_was_acknowledged_long_ago_is_forgotten(project: Project) -> None:
    queue = publish(project, 1, 1, ttl=3_000_000)
    die_at("sources.records_leased", queue)
    later = now() + timedelta(seconds=61)
    assert numbers(consume(queue=queue, count=1, now=later)) == [1]
    assert bytes(HandedRecord.objects.get().body) == b""
    assert prune_expired(now=later) == 0
    assert prune_expired(now=later + timedelta(days=1)) == 1


@pytest.mark.covers("S0.24", "S0.35")
def test_a_size_tells_living_records_from_dead_ones_behind_them(project: Project) -> None:
    queue = publish(project, 1, 3, ttl=3600)
    publish(project, 4, 8, ttl=0.2)
    publish(project, 9, 10, ttl=3600)
    # RabbitMQ removes expired messages at the head; the embedded broker does not count them.
    later = now() + timedelta(seconds=1)
    size = until(5, lambda: queue_size(queue=queue, now=now()).live)
    assert size == 5
    told = queue_size(queue=queue, now=now())
    assert told.waiting - told.expired == 5
    assert numbers(consume(queue=queue, count=9, now=later)) == [1, 2, 3, 9, 10]
    assert queue_size(queue=queue, now=now()).waiting == 0


def test_spans_of_what_is_long_gone_are_forgotten(project: Project) -> None:
    queue = publish(project, 1, 3, ttl=0.05)
    consume(queue=queue, count=9, now=now())
    publish(project, 4, 5)
    until(2, lambda: queue_size(queue=queue, now=now()).live)
    PublishedSpan.objects.filter(count=3).update(minute=now() - timedelta(days=1))
    assert prune_spans(now=now() + timedelta(hours=2)) == 1
    assert sum(PublishedSpan.objects.values_list("count", flat=True)) == 2


def test_records_that_expire_in_nobodys_hands_are_forgotten(project: Project) -> None:
    queue = publish(project, 1, 2, ttl=600)
    lease_records(queue=queue, count=2, seconds=1, holder="one", now=now())
    later = now() + timedelta(seconds=601)
    assert peek(queue=queue, count=2, now=later) == []
    assert queue_size(queue=queue, now=later).live == 0
    assert prune_expired(now=later) == 2
    assert not HandedRecord.objects.exists()


def test_a_body_that_is_no_json_comes_as_it_is(project: Project) -> None:
    queue = claim_queue(project_id=project.pk, name="job_data")
    publish(project, 1, 1)
    shared_broker().publish([Outgoing(body=b"\xff\x00", key=queue.name)]).result(10)
    first, second = consume(queue=queue, count=2, now=now())
    assert first.shown()["record"] == {"n": 1}
    assert second.shown()["record"] is None
    assert second.shown()["raw"] == "/wA="


@pytest.mark.slow("3 s")
def test_a_broker_that_is_away_takes_nothing(settings: Any) -> None:
    project = sourced()
    queue = claim_queue(project_id=project.pk, name="job_data")
    with broker_at("amqp://nobody:nothing@127.0.0.1:1/"):
        for ask in (
            lambda: consume(queue=queue, count=1, now=now()),
            lambda: peek(queue=queue, count=1, now=now()),
            lambda: lease_records(queue=queue, count=1, seconds=9, holder="x", now=now()),
            lambda: queue_size(queue=queue, now=now()),
        ):
            with pytest.raises(BrokerUnreachable):
                ask()


def test_a_queue_belongs_to_the_first_project_that_names_it() -> None:
    one, other = sourced(), sourced()
    assert queue_of_project(project_id=one.pk).name == "job_data"
    assert RecordQueue.objects.get().project_id == one.pk
    with pytest.raises(QueueOwnedElsewhere):
        queue_of_project(project_id=other.pk)
    with pytest.raises(QueueOwnedElsewhere):
        claim_queue(project_id=other.pk, name="statistics")
    with pytest.raises(NoSuchQueue):
        queue_of_project(project_id=one.pk, name="elsewhere")
    with pytest.raises(NoSuchQueue):
        queue_of_project(project_id=make_project().pk)
    sourced(one, a={"task_id": "1", "queue": "a"}, b={"task_id": "2", "queue": "b"})
    with pytest.raises(QueueNeeded) as caught:
        queue_of_project(project_id=one.pk)
    assert caught.value.fields["queue"] == ["a", "b"]
    # A source's former queue may still hold records.
    assert queue_of_project(project_id=one.pk, name="job_data").project_id == one.pk
