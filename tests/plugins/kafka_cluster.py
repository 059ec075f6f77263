"""A Kafka broker for tests: librdkafka's mock cluster, in a process of its own.

It speaks the real protocol to any process: groups, rebalances, commits, watermarks. It keeps
everything in memory, about 5 MB a partition, and makes each topic with 4 partitions when it is
first spoken of.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

PARTITIONS = 4
_START_SECONDS = 30.0

# The library's own C interface: only there a group starts without its delay of 3 s, and only
# there a broker goes away and comes back at the same port. It ends with its input, so that none
# outlives a test session that was killed.
_SERVER = """
import ctypes
import sys
from confluent_kafka import cimpl

library = ctypes.CDLL(cimpl.__file__)
pointer = ctypes.c_void_p
library.rd_kafka_conf_new.restype = pointer
library.rd_kafka_new.restype = pointer
library.rd_kafka_new.argtypes = [ctypes.c_int, pointer, ctypes.c_char_p, ctypes.c_size_t]
library.rd_kafka_mock_cluster_new.restype = pointer
library.rd_kafka_mock_cluster_new.argtypes = [pointer, ctypes.c_int]
library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
library.rd_kafka_mock_cluster_bootstraps.argtypes = [pointer]
library.rd_kafka_mock_group_initial_rebalance_delay_ms.argtypes = [pointer, ctypes.c_int32]
for name in ("down", "up"):
    getattr(library, f"rd_kafka_mock_broker_set_{name}").argtypes = [pointer, ctypes.c_int32]

library.rd_kafka_set_log_level.argtypes = [pointer, ctypes.c_int]

PRODUCER = 0
client = library.rd_kafka_new(PRODUCER, library.rd_kafka_conf_new(), None, 0)
library.rd_kafka_set_log_level(client, 0)
cluster = library.rd_kafka_mock_cluster_new(client, 1)
library.rd_kafka_mock_group_initial_rebalance_delay_ms(cluster, 100)
servers = library.rd_kafka_mock_cluster_bootstraps(cluster).decode()
print(servers, flush=True)
for line in sys.stdin:
    getattr(library, f"rd_kafka_mock_broker_set_{line.strip()}")(cluster, 1)
    print("done", flush=True)
"""


class KafkaCluster:
    """One broker; ``servers`` is its ``bootstrap.servers``."""

    def __init__(self, servers: str, process: subprocess.Popen[str]) -> None:
        self.servers = servers
        self._process = process

    def make_topic(self, name: str = "topic") -> str:
        """The name of a new topic, which exists from here on."""
        topic = f"{name}-{os.getpid()}-{secrets.token_hex(4)}"
        self.partitions(topic)
        return topic

    def partitions(self, topic: str) -> int:
        """How many partitions the topic has; it is made if need be."""
        from confluent_kafka.admin import AdminClient

        client = AdminClient({"bootstrap.servers": self.servers})
        deadline = time.monotonic() + _START_SECONDS
        while True:
            found = client.list_topics(topic, timeout=10).topics[topic]
            if found.error is None and found.partitions:
                return len(found.partitions)
            assert time.monotonic() < deadline, f"{topic} is not there: {found.error}"

    def produce(self, topic: str, values: Sequence[bytes], partition: int | None = None) -> None:
        """Write these, to one partition or to any; returns when the broker has all of them."""
        from confluent_kafka import Producer

        refused: list[Any] = []
        producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 0})
        where: dict[str, int] = {} if partition is None else {"partition": partition}
        for value in values:
            producer.produce(
                topic,
                value,
                on_delivery=lambda error, _: refused.append(error) if error else None,
                **where,
            )
        assert producer.flush(30) == 0, f"the broker does not take messages for {topic}"
        assert not refused, refused

    def read(self, topic: str, count: int, seconds: float = 20.0) -> list[Any]:
        """The first ``count`` messages of the topic, by a consumer that leaves no trace."""
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": secrets.token_hex(8)})
        try:
            consumer.assign(
                [
                    TopicPartition(topic, number, OFFSET_BEGINNING)
                    for number in range(self.partitions(topic))
                ]
            )
            found: list[Any] = []
            deadline = time.monotonic() + seconds
            while len(found) < count:
                assert time.monotonic() < deadline, f"{len(found)} of {count} messages in {topic}"
                found += [
                    message
                    for message in consumer.consume(count - len(found), timeout=0.2)
                    if message.error() is None
                ]
            return found
        finally:
            consumer.close()

    def down(self) -> None:
        """The broker cuts its connections and takes no new ones until ``up``."""
        self._tell("down")

    def up(self) -> None:
        """The broker is there again, at the same port, with all that it had."""
        self._tell("up")

    def _tell(self, what: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(what, file=self._process.stdin, flush=True)
        assert self._process.stdout.readline() == "done\n"

    def pause(self) -> None:
        """The broker hangs: it answers nobody until ``resume``."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """The broker goes on where it hung."""
        self._process.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def lend_kafka_cluster() -> Iterator[KafkaCluster]:
    """A broker of one's own, for tests that stop it."""
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None
            servers = process.stdout.readline().strip()
            assert servers, "librdkafka's mock cluster did not start"
            yield KafkaCluster(servers, process)
        finally:
            process.kill()


@pytest.fixture(scope="session")
def kafka_cluster() -> Iterator[KafkaCluster]:
    """A broker for the whole session; topics and groups need names of their own."""
    with lend_kafka_cluster() as cluster:
        yield cluster
