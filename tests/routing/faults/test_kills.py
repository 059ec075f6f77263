"""SIGKILL at every failpoint of a router: a fresh one goes on, and nothing is lost."""

from __future__ import annotations

import re

import pytest

from tests.e2e.daemon_processes import ROOT
from tests.plugins.kafka_cluster import KafkaCluster
from tests.routing.faults.yard import FULL, ITEMS, Yard, item, values

pytestmark = [pytest.mark.fault, pytest.mark.services, pytest.mark.timeout(300)]

# At which hit: when the work is under way.
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
# Those of failure files are tried by the tests of these.
_ELSEWHERE = re.compile(r"routing\.failures_")
# A Kafka group waits for its dead member: these two say enough where time is short.
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
def test_killed_between_rabbitmq_and_redis(yard: Yard, point: str) -> None:
    traffic = yard.project()
    traffic.publish(range(ITEMS))
    traffic.until_killed(traffic.start("first", FAILPOINTS=f"{point}=kill@{POINTS[point]}"))
    name = traffic.start("second")
    traffic.until_settled(ITEMS)
    repeats = traffic.check(ITEMS)
    # Each repeat is told by its item, and none happens where nothing was sent yet.
    assert yard.ask("repeats", slug=traffic.slug, names=traffic.sent_again()) == repeats
    if point in ("router.sent", "routing.moved_before_commit"):
        assert repeats > 0
    traffic.stop(name)
    assert yard.broker.depth(traffic.queue).ready == 0


@pytest.mark.kafka
@pytest.mark.parametrize("point", OF_KAFKA)
def test_killed_between_kafka_and_redis(
    yard: Yard, kafka_cluster: KafkaCluster, point: str
) -> None:
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
    traffic = yard.project(inbound)
    kafka_cluster.produce(topic, [item(number) for number in range(ITEMS)])
    traffic.until_killed(traffic.start("first", FAILPOINTS=f"{point}=kill@{POINTS[point]}"))
    name = traffic.start("second")
    traffic.until_settled(ITEMS)
    repeats = traffic.check(ITEMS)
    assert yard.ask("repeats", slug=traffic.slug, names=traffic.sent_again()) == repeats
    traffic.stop(name)


def test_killed_while_it_claims_what_the_web_took_in(yard: Yard) -> None:
    traffic = yard.project()
    yard.ask("submit", slug=traffic.slug, items=[values(number) for number in range(ITEMS)])
    traffic.until_killed(traffic.start("first", FAILPOINTS=f"{CLAIMED}=kill@1"))
    name = traffic.start("second")
    traffic.until_settled(ITEMS)
    assert traffic.check(ITEMS, most_twice=0) == 0
    traffic.stop(name)
