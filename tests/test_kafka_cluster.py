"""The Kafka broker of the tests is one: other tests trust it."""

from __future__ import annotations

import socket

import pytest

from tests.plugins.kafka_cluster import PARTITIONS, KafkaCluster, lend_kafka_cluster

pytestmark = pytest.mark.kafka


def test_what_is_written_to_a_partition_is_read_from_it(kafka_cluster: KafkaCluster) -> None:
    topic = kafka_cluster.make_topic()
    kafka_cluster.produce(topic, [b"1", b"2"], partition=2)
    found = kafka_cluster.read(topic, 2)
    assert [(part.partition(), part.offset(), part.value()) for part in found] == [
        (2, 0, b"1"),
        (2, 1, b"2"),
    ]


def test_a_topic_has_four_partitions(kafka_cluster: KafkaCluster) -> None:
    assert kafka_cluster.partitions(kafka_cluster.make_topic()) == PARTITIONS


def test_it_goes_and_comes_back_with_all_that_it_had() -> None:
    with lend_kafka_cluster() as cluster:
        topic = cluster.make_topic()
        cluster.produce(topic, [b"1"])
        host, _colon, port = cluster.servers.rpartition(":")
        cluster.down()
        with pytest.raises(ConnectionError):
            socket.create_connection((host, int(port)), timeout=5).close()
        cluster.up()
        assert [message.value() for message in cluster.read(topic, 1)] == [b"1"]
