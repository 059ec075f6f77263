"""Test sources of inbounds with a common interface: put, outage, count."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit, urlunsplit

import pika
import redis

from apps.routing.engine.inbounds.base import Context, Inbound, Taken
from apps.routing.engine.inbounds.registry import find
from tests.plugins.kafka_cluster import PARTITIONS, KafkaCluster
from tests.yardkit.broker_proxy import Proxy

WAIT_SECONDS = 40.0


def wait_for(holds: Callable[[], bool], what: str) -> None:
    """Wait until a condition holds, with a generous timeout."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"waited {WAIT_SECONDS:g} s for {what}"
        time.sleep(0.02)


def take(inbound: Inbound, count: int, most: int = 100) -> list[Taken]:
    """Take exactly ``count`` items, waiting as long as needed."""
    found: list[Taken] = []

    def enough() -> bool:
        found.extend(inbound.take(min(most, count - len(found)), 0.2))
        return len(found) >= count

    wait_for(enough, f"{count} items; {inbound.problem}")
    return found


class Source(Protocol):
    """Interface that the contract test needs of a server."""

    cls: str
    init: dict[str, Any]

    def put(self, values: Sequence[bytes]) -> None:
        """Add items in this order."""

    def left(self) -> int:
        """Return how many items the server has not delivered or not seen acknowledged."""

    def outage(self) -> contextlib.AbstractContextManager[None]:
        """Make the server unreachable."""

    def hasten(self) -> None:
        """From here on a dead consumer is found to be dead as soon as the server allows."""


class Factory:
    """Factory of inbounds for one source; closes them."""

    def __init__(self, source: Source, folder: Path) -> None:
        self.source = source
        self._folder = folder
        self._made: list[Inbound] = []

    def context(self, in_flight: int = 100) -> Context:
        return Context("in", f"test-{secrets.token_hex(3)}", self._folder, self._folder, in_flight)

    def make(self, in_flight: int = 100) -> Inbound:
        made: Inbound = find(self.source.cls)(self.context(in_flight), self.source.init)
        self._made.append(made)
        return made

    def order(self, limit: int, acks: int) -> str:
        """Return the arguments of consumer_process.py."""
        context = {
            name: str(value) if isinstance(value, Path) else value
            for name, value in asdict(self.context(limit)).items()
        }
        return json.dumps(
            {
                "cls": self.source.cls,
                "init": self.source.init,
                "context": context,
                "limit": limit,
                "acks": acks,
            }
        )

    def close(self) -> None:
        for made in self._made:
            made.close()


def _through(proxy: Proxy, url: str) -> str:
    parts = urlsplit(url)
    login, at, _host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{login}{at}127.0.0.1:{proxy.port}"))


class _Proxied:
    proxy: Proxy

    @contextlib.contextmanager
    def outage(self) -> Iterator[None]:
        self.proxy.shut()
        try:
            yield
        finally:
            self.proxy.open()

    def hasten(self) -> None:
        """It is found at once."""


class RedisSource(_Proxied):
    cls = "redis_queue.RedisListInbound"

    def __init__(self, url: str, proxy: Proxy) -> None:
        self.proxy = proxy
        self.url = url
        self.client = redis.Redis.from_url(url)
        self.key = f"items-{secrets.token_hex(4)}"
        self.init: dict[str, Any] = {"url": _through(proxy, url), "key": self.key}

    def hasten(self) -> None:
        # Where two consumers live, a busy machine must not make one of them look dead.
        self.init["lease_seconds"] = 2.0

    def put(self, values: Sequence[bytes]) -> None:
        for value in values:
            self.client.lpush(self.key, value)

    def left(self) -> int:
        taken = self.client.scan_iter(f"{self.key}:taken:*", count=1000)
        return self.client.llen(self.key) + sum(self.client.hlen(key) for key in taken)  # type: ignore[operator, misc]

    def close(self) -> None:
        self.client.close()


class RabbitSource(_Proxied):
    cls = "rabbitmq.RabbitInbound"

    def __init__(self, url: str, proxy: Proxy) -> None:
        self.proxy = proxy
        self._connection = pika.BlockingConnection(pika.URLParameters(url))
        self._channel = self._connection.channel()
        self._channel.confirm_delivery()
        self.queue = f"items-{os.getpid()}-{secrets.token_hex(4)}"
        self._channel.queue_declare(self.queue, durable=True)
        self.init = {"url": _through(proxy, url), "queue": self.queue}

    def put(self, values: Sequence[bytes]) -> None:
        for value in values:
            self._channel.basic_publish("", self.queue, value, mandatory=True)

    def left(self) -> int:
        """Those without a consumer only."""
        declared = self._channel.queue_declare(self.queue, passive=True)
        return int(declared.method.message_count)

    def close(self) -> None:
        self._channel.queue_delete(self.queue)
        self._connection.close()


class KafkaSource:
    cls = "kafka.KafkaInbound"

    def __init__(self, cluster: KafkaCluster) -> None:
        self.cluster = cluster
        self.topic = cluster.make_topic("items")
        self.group = f"group-{secrets.token_hex(4)}"
        self.init = {
            "consumer_settings": {
                "bootstrap.servers": cluster.servers,
                "group.id": self.group,
                "session.timeout.ms": 4000,
                "heartbeat.interval.ms": 200,
                "auto.commit.interval.ms": 50,
            },
            "topics": [self.topic],
        }

    def put(self, values: Sequence[bytes], partition: int = 0) -> None:
        self.cluster.produce(self.topic, values, partition=partition)

    def left(self) -> int:
        from confluent_kafka import Consumer, TopicPartition

        client = Consumer({"bootstrap.servers": self.cluster.servers, "group.id": self.group})
        try:
            waiting = 0
            places = [TopicPartition(self.topic, number) for number in range(PARTITIONS)]
            for place in client.committed(places, timeout=20):
                low, high = client.get_watermark_offsets(place, timeout=20)
                waiting += high - max(low, place.offset)
            return waiting
        finally:
            client.close()

    @contextlib.contextmanager
    def outage(self) -> Iterator[None]:
        self.cluster.down()
        try:
            yield
        finally:
            self.cluster.up()

    def hasten(self) -> None:
        """Its session is short in all tests: an orderly leave takes as long with this broker."""

    def close(self) -> None:
        """The topic goes with the cluster."""


class FileSource:
    cls = "file.FileInbound"

    def __init__(self, folder: Path) -> None:
        self.path = folder / "items.jsonl"
        self.path.touch()
        self._state = folder / "inbound-in.json"
        self.init = {"path": self.path.name}

    def put(self, values: Sequence[bytes]) -> None:
        with self.path.open("ab") as file:
            file.writelines(value + b"\n" for value in values)

    def left(self) -> int:
        offset = json.loads(self._state.read_text())["offset"] if self._state.exists() else 0
        return self.path.read_bytes()[offset:].count(b"\n")

    @contextlib.contextmanager
    def outage(self) -> Iterator[None]:
        away = self.path.with_name("away")
        self.path.rename(away)
        try:
            yield
        finally:
            away.rename(self.path)

    def hasten(self) -> None:
        """Its lock opens at once."""

    def close(self) -> None:
        """The folder goes with the test."""
