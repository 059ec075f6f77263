"""Kafka inbound: partitions, rebalances, commits."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from apps.routing.engine.inbounds import registry
from apps.routing.engine.inbounds.base import BadInit, Context, Inbound
from apps.routing.engine.inbounds.kafka import KafkaInbound
from apps.routing.engine.rules import Inbound as Rule
from tests.plugins.kafka_cluster import KafkaCluster
from tests.routing.engine.inbounds.sources import Factory, KafkaSource, take, wait_for

pytestmark = pytest.mark.kafka


@pytest.fixture
def source(kafka_cluster: KafkaCluster) -> KafkaSource:
    return KafkaSource(kafka_cluster)


@pytest.fixture
def maker(source: KafkaSource, tmp_path: Path) -> Iterator[Factory]:
    made = Factory(source, tmp_path)
    yield made
    made.close()


@pytest.mark.slow("4 s")
@pytest.mark.covers("S2.21")
def test_only_the_contiguous_prefix_is_committed(maker: Factory, source: KafkaSource) -> None:
    source.put([b"0", b"1", b"2", b"3"])
    inbound = maker.make()
    taken = take(inbound, 4)
    assert [each.where for each in taken] == [f"{source.topic}[0]@{number}" for number in range(4)]
    inbound.ack([taken[1].handle, taken[3].handle])
    inbound.ack([taken[0].handle])
    inbound.close()
    assert source.left() == 2
    assert [each.raw for each in take(maker.make(), 2)] == [b"2", b"3"]


@pytest.mark.slow("4 s")
def test_what_was_acknowledged_does_not_go_along_with_a_partition(
    maker: Factory, source: KafkaSource
) -> None:
    for partition in range(4):
        source.put([b"done %d" % partition, b"open %d" % partition], partition)
    first = maker.make()
    taken = take(first, 8)
    first.ack([each.handle for each in taken if each.raw.startswith(b"done")])
    # This broker takes no commit once it has begun to move partitions, as others do.
    wait_for(lambda: source.left() == 4, "the commit")
    with polled(first):
        second = maker.make()
        again = take(second, 2)
    assert all(each.raw.startswith(b"open") for each in again)
    second.ack([each.handle for each in again])
    second.close()
    first.close()
    assert source.left() == 2


@contextlib.contextmanager
def polled(inbound: Inbound) -> Iterator[None]:
    """Keep the consumer in its group by polling."""
    done = threading.Event()

    def poll() -> None:
        while not done.is_set():
            inbound.take(1, 0.1)

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@pytest.mark.slow("10 s")
def test_a_late_ack_is_ignored_and_counted(maker: Factory, source: KafkaSource) -> None:
    for partition in range(4):
        source.put([b"%d" % partition], partition)
    first = maker.make()
    taken = take(first, 4)
    with polled(first):
        second = maker.make()
        again = take(second, 2)
    # All partitions went, and two came back: acks of before the exchange say nothing.
    first.ack([each.handle for each in taken])
    assert first.late == 4
    first.close()
    assert source.left() == 4
    second.ack([each.handle for each in again])
    assert second.late == 0


def test_a_topic_that_is_not_there_yet(maker: Factory, source: KafkaSource) -> None:
    """A new project may name a topic that does not exist yet (seed S2.21)."""
    source.topic = source.init["topics"][0] = f"{source.topic}-new"  # type: ignore[index]
    inbound = maker.make()
    inbound.take(1, 0.1)
    source.put([b"1"])
    [taken] = take(inbound, 1)
    assert taken.raw == b"1"


@pytest.mark.covers("S2.23")
def test_more_threads_than_partitions_are_warned_of(maker: Factory, source: KafkaSource) -> None:
    inbound = maker.make()
    rule = Rule("in", source.cls, source.init, threads=8, place="main.yaml:3")
    [problem] = registry.check_running(inbound, rule)
    assert problem.warning
    assert problem.code == "threads_over_partitions"
    assert str(problem).startswith(f"main.yaml:3: 8 threads, but {source.topic}: 4 partition(s)")
    assert registry.check_running(inbound, Rule("in", source.cls, source.init, threads=4)) == []


def test_a_message_without_a_value_is_empty(maker: Factory, source: KafkaSource) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": source.cluster.servers})
    producer.produce(source.topic, None, key=b"gone", partition=0)
    assert producer.flush(30) == 0
    [taken] = take(maker.make(), 1)
    assert taken.raw == b""


def test_without_a_server_it_says_so_and_ends_in_time(tmp_path: Path) -> None:
    settings = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "sasl.password": "top"}
    context = Context("in", "me", tmp_path, tmp_path)
    inbound = KafkaInbound(context, {"consumer_settings": settings, "topics": ["t"]})
    wait_for(lambda: inbound.take(1, 0.1) == [] and inbound.problem != "", "a problem")
    assert inbound.problem.startswith("Kafka: ")
    assert "top" not in inbound.problem
    assert inbound.depth() is None
    assert inbound.check_running(8) == []
    inbound.close()
    assert inbound.depth() is None


def test_wrong_settings_are_no_inbound(tmp_path: Path) -> None:
    settings = {"bootstrap.servers": "h", "group.id": "g", "no.such": "1"}
    with pytest.raises(BadInit, match=r"no\.such"):
        KafkaInbound(
            Context("in", "me", tmp_path, tmp_path),
            {"consumer_settings": settings, "topics": ["t"]},
        )
