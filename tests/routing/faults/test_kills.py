"""SIGKILL, SIGSTOP and exceptions at every failpoint of a router lose no item."""

from __future__ import annotations

import re
import signal

import pytest

from tests.e2e.daemon_processes import ROOT
from tests.plugins.kafka_cluster import KafkaCluster
from tests.plugins.measurements import Measured
from tests.routing.faults.harness import (
    FULL,
    IN_HAND,
    ITEMS,
    RouterHarness,
    Traffic,
    is_frozen,
    item,
    values,
)

pytestmark = [pytest.mark.fault, pytest.mark.services, pytest.mark.timeout(300)]

# Which hit of the failpoint: late enough that work is in progress.
POINTS = {
    "router.taken": 2,
    "routing.received_before_commit": 2,
    "router.received": 2,
    "router.sent": 2,
    "routing.moved_before_commit": 2,
    "router.moved": 2,
    "router.acked": 2,
}
CLAIMED = "routing.claimed_before_commit"
# The other one, after a batch was sent, has its own test.
FROZEN = [point for point in (*POINTS, CLAIMED) if point != "router.sent"]
# An item held by two killed processes is claimed after two leases of 30 s.
LEASES_SECONDS = 120.0
# The failpoints of failure files have their own tests.
_ELSEWHERE = re.compile(r"routing\.failures_")
# A Kafka group waits for its dead member, which is slow: two points are enough in the quick run.
OF_KAFKA = list(POINTS) if FULL else ["router.sent"]


def test_every_failpoint_is_tried() -> None:
    found = {
        name
        for path in (ROOT / "apps" / "routing").rglob("*.py")
        for name in re.findall(r'failpoints\.hit\("([a-z_.]+)"\)', path.read_text("utf-8"))
        if not _ELSEWHERE.match(name)
    }
    assert found == {*POINTS, CLAIMED}


@pytest.mark.parametrize("point", POINTS)
def test_killed_between_rabbitmq_and_redis(
    harness: RouterHarness, point: str, measured: Measured
) -> None:
    traffic = harness.project()
    traffic.publish(range(ITEMS))
    traffic.until_killed(traffic.start("first", FAILPOINTS=f"{point}=kill@{POINTS[point]}"))
    name, back_s = traffic.restart(ITEMS)
    traffic.until_settled(ITEMS)
    repeats = traffic.check(ITEMS, measured=measured, back_s=back_s)
    # Each duplicate is explained by a step of its item; before sending there is none.
    assert harness.ask("repeats", slug=traffic.slug, names=traffic.sent_again()) == repeats
    if point in ("router.sent", "routing.moved_before_commit"):
        assert repeats > 0
    traffic.stop(name)
    assert harness.broker.depth(traffic.queue).ready == 0


@pytest.mark.kafka
@pytest.mark.parametrize("point", OF_KAFKA)
def test_killed_between_kafka_and_redis(
    harness: RouterHarness, kafka_cluster: KafkaCluster, point: str, measured: Measured
) -> None:
    traffic = of_kafka(harness, kafka_cluster)
    traffic.until_killed(traffic.start("first", FAILPOINTS=f"{point}=kill@{POINTS[point]}"))
    name, back_s = traffic.restart(ITEMS)
    traffic.until_settled(ITEMS)
    repeats = traffic.check(ITEMS, measured=measured, back_s=back_s)
    assert harness.ask("repeats", slug=traffic.slug, names=traffic.sent_again()) == repeats
    traffic.stop(name)


def of_kafka(harness: RouterHarness, kafka_cluster: KafkaCluster) -> Traffic:
    """Create a project whose inbound is a Kafka topic."""
    topic = kafka_cluster.make_topic("faults")
    settings = {
        "bootstrap.servers": kafka_cluster.servers,
        "group.id": topic,
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 1000,
    }
    inbound = {
        "class": "kafka.KafkaInbound",
        "init": {"consumer_settings": settings, "topics": [topic]},
        "threads": 2,
    }
    traffic = harness.project(inbound)
    kafka_cluster.produce(topic, [item(number) for number in range(ITEMS)])
    return traffic


def test_killed_while_it_claims_what_the_web_took_in(
    harness: RouterHarness, measured: Measured
) -> None:
    traffic = harness.project()
    harness.ask("submit", slug=traffic.slug, items=[values(number) for number in range(ITEMS)])
    traffic.until_killed(traffic.start("first", FAILPOINTS=f"{CLAIMED}=kill@1"))
    name, back_s = traffic.restart(ITEMS)
    traffic.until_settled(ITEMS)
    assert traffic.check(ITEMS, most_twice=0, measured=measured, back_s=back_s) == 0
    traffic.stop(name)


@pytest.mark.long("killed there each of them is tried")
def test_an_exception_at_each_failpoint_costs_no_item(
    harness: RouterHarness, measured: Measured
) -> None:
    traffic = harness.project()
    of_web = ITEMS // 20
    harness.ask("submit", slug=traffic.slug, items=[values(number) for number in range(of_web)])
    traffic.publish(range(of_web, ITEMS))
    # One failpoint after the other, while there is work.
    points = ",".join(f"{point}=raise@{at}" for at, point in enumerate(POINTS, 2))
    name = traffic.start(FAILPOINTS=f"{CLAIMED}=raise@1,{points}")
    # Items that failed after they were stored are claimed when their lease expires.
    traffic.until_settled(ITEMS, LEASES_SECONDS)
    # Of all items that were sent, but whose moves were not committed.
    repeats = traffic.check(ITEMS, measured=measured)
    assert harness.ask("repeats", slug=traffic.slug, names=traffic.sent_again()) == repeats
    said = harness.daemons.log(name)
    found = {point for point in (*POINTS, CLAIMED) if f"FailpointError: {point}" in said}
    # A batch that cannot be taken in is taken in item by item, without a word. That this was so is
    # known by the last one: before so many batches are acknowledged, more have passed there.
    assert found == {*POINTS, CLAIMED} - {"routing.received_before_commit"}
    traffic.stop(name)
    assert harness.broker.depth(traffic.queue).ready == 0


@pytest.mark.long("frozen with a batch sent, and killed there each of them is tried")
@pytest.mark.parametrize("point", FROZEN)
def test_frozen_at_a_failpoint_it_costs_no_item(
    harness: RouterHarness, point: str, measured: Measured
) -> None:
    """Freeze a router for longer than another one waits for its locks."""
    traffic = harness.project()
    if point == CLAIMED:
        harness.ask("submit", slug=traffic.slug, items=[values(number) for number in range(ITEMS)])
    else:
        traffic.publish(range(ITEMS))
    frozen = traffic.start("frozen", FAILPOINTS=f"{point}=stop:12@1")
    process = harness.daemons.processes[frozen]
    harness.until(lambda: is_frozen(process.pid), "it freezes")
    # Another router claims what it can.
    other, back_s = traffic.restart(ITEMS, "other")
    harness.until(lambda: not is_frozen(process.pid), "it wakes")
    traffic.until_settled(ITEMS, LEASES_SECONDS)
    repeats = traffic.check(ITEMS, measured=measured, back_s=back_s)
    assert harness.ask("repeats", slug=traffic.slug, names=traffic.sent_again()) == repeats
    for name in (frozen, other):
        traffic.stop(name)
    assert harness.broker.depth(traffic.queue).ready == 0


@pytest.mark.kafka
@pytest.mark.long("frozen where it reads RabbitMQ, and killed where it reads Kafka")
@pytest.mark.parametrize("point", POINTS)
def test_frozen_while_it_reads_kafka_it_costs_no_item(
    harness: RouterHarness, kafka_cluster: KafkaCluster, point: str, measured: Measured
) -> None:
    """Freeze a router for longer than its consumer session: Kafka reassigns its partitions."""
    traffic = of_kafka(harness, kafka_cluster)
    frozen = traffic.start("frozen", FAILPOINTS=f"{point}=stop:12@1")
    process = harness.daemons.processes[frozen]
    harness.until(lambda: is_frozen(process.pid), "it freezes")
    other, back_s = traffic.restart(ITEMS, "other")
    harness.until(lambda: not is_frozen(process.pid), "it wakes")
    traffic.until_settled(ITEMS, LEASES_SECONDS)
    # Both routers may each have had a full batch in progress.
    repeats = traffic.check(ITEMS, most_twice=2 * IN_HAND, measured=measured, back_s=back_s)
    assert harness.ask("repeats", slug=traffic.slug, names=traffic.sent_again()) == repeats
    # A rebalance of the group may delay the close of the Kafka client: the process then exits
    # after 4 s with status 1.
    for name in (frozen, other):
        assert harness.daemons.stop(name, signal.SIGTERM)[0] in (0, 1), harness.logs()
    assert traffic.settled(ITEMS)
