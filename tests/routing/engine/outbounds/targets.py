"""Targets for the contract tests, each with a consumer from the documentation."""

from __future__ import annotations

import contextlib
import json
import secrets
import threading
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pika
import redis

from apps.routing.engine import rules
from apps.routing.engine.outbounds import registry
from apps.routing.engine.outbounds.base import Outbound, Sent, Settings
from tests.routing.engine.outbounds.examples import examples
from tests.routing.engine.outbounds.kafka_cluster import PARTITIONS, KafkaCluster
from tests.yardkit.broker_proxy import Proxy

Item = dict[str, Any]
PATIENCE_SECONDS = 30


def sent(number: int = 0, *, priority: int = 1000, rt: bool = False, **keys: Any) -> Sent:
    """Return a message as the router builds it."""
    message = {"task_uuid": f"u{number}", "number": number, "same": "one", **keys}
    return Sent(f"u{number}", message, priority, rt)


def through(proxy: Proxy, url: str) -> str:
    """Return the URL with the proxy in place of its host."""
    parts = urlsplit(url)
    login = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
    return parts._replace(netloc=f"{login}127.0.0.1:{proxy.port}").geturl()


class Target:
    """Target with its URL, its consumer and its outages."""

    cls = ""
    # Whether ``depth`` can be known.
    has_depth = True
    # Whether a message that is sent twice is there twice.
    keeps_twins = True

    def __init__(self) -> None:
        self.stack = contextlib.ExitStack()

    def init(self) -> Item:
        raise NotImplementedError

    def make(self, *, timeout: float = PATIENCE_SECONDS, **init: Any) -> Outbound:
        rule = rules.Outbound("contract", self.cls, init={**self.init(), **init})
        assert registry.check(rule) == []
        outbound = registry.build(rule, Settings("test router", timeout, ("127.0.0.0/8",)))
        self.stack.callback(outbound.close)
        return outbound

    def take(self) -> Item | None:
        """Return the next item, or None."""
        raise NotImplementedError

    def take_all(self, number: int) -> list[Item]:
        """This many items, and no more."""
        taken = []
        for _ in range(number):
            item = self.take()
            assert item is not None, f"{len(taken)} of {number} items came"
            taken.append(item)
        return taken

    def gone(self) -> None:
        """Make the target unreachable."""

    def hung(self) -> None:
        """Keep the target reachable without any answer."""

    def back(self) -> None:
        """Restore the target."""

    def close(self) -> None:
        self.back()
        self.stack.close()


class ProxiedTarget(Target):
    """Target behind a proxy whose connections can be cut or frozen."""

    def __init__(self, url: str) -> None:
        super().__init__()
        parts = urlsplit(url)
        assert parts.port is not None
        self.direct_url = url
        self.proxy = self.stack.enter_context(Proxy("127.0.0.1", parts.port))
        self.url = through(self.proxy, url)

    def gone(self) -> None:
        self.proxy.shut()

    def hung(self) -> None:
        self.proxy.freeze(frozen=True)

    def back(self) -> None:
        self.proxy.freeze(frozen=False)
        self.proxy.open()


class RedisListTarget(ProxiedTarget):
    cls = "redis_queue.RedisListOutbound"
    taker = "take_from_list"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.key = f"queue:{secrets.token_hex(4)}"
        self.client: Any = redis.Redis.from_url(url, socket_timeout=PATIENCE_SECONDS)
        self.stack.callback(self.client.close)

    def init(self) -> Item:
        return {"url": self.url, "key": self.key}

    def take(self) -> Item | None:
        taker: Callable[..., Item | None] = examples()[self.taker]
        return taker(self.client, self.key, seconds=0.05)


class RedisPriorityTarget(RedisListTarget):
    cls = "redis_queue.RedisPriorityOutbound"
    taker = "take_by_priority"


class RabbitTarget(ProxiedTarget):
    cls = "rabbitmq.RabbitQueueOutbound"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.queue = f"queue.{secrets.token_hex(4)}"
        self.connection = pika.BlockingConnection(pika.URLParameters(url))
        self.channel = self.connection.channel()
        self.stack.callback(self.connection.close)
        self.stack.callback(self.channel.queue_delete, self.queue)

    def init(self) -> Item:
        return {"url": self.url, "queue": self.queue}

    def take(self) -> Item | None:
        items: list[Item] = []
        examples()["take_from_rabbitmq"](self.channel, self.queue, items.append)
        return items[0] if items else None


class KafkaTarget(Target):
    cls = "kafka.KafkaOutbound"

    def __init__(self, cluster: KafkaCluster) -> None:
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        super().__init__()
        self.cluster = cluster
        self.topic = f"topic-{secrets.token_hex(4)}"
        self.group = f"group-{self.topic}"
        self.consumer = Consumer(
            {
                "bootstrap.servers": cluster.servers,
                "group.id": self.group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "allow.auto.create.topics": True,
                "log_level": 2,
                # Topics are made by the first message; look for them soon.
                "topic.metadata.refresh.interval.ms": 200,
            }
        )
        self.stack.callback(self.consumer.close)
        # Not subscribed, because a group takes seconds to form.
        self.consumer.assign(
            [TopicPartition(self.topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)]
        )

    def init(self) -> Item:
        return {
            "topic": self.topic,
            "producer_settings": {"bootstrap.servers": self.cluster.servers},
            "consumer_group": self.group,
            # Of equal value in all items, so that they are in one partition.
            "key": "same",
        }

    def take(self) -> Item | None:
        items: list[Item] = []
        examples()["take_from_kafka"](self.consumer, items.append, seconds=0.5)
        return items[0] if items else None

    def take_all(self, number: int) -> list[Item]:
        """The consumer learns of a new topic a moment later."""
        taken: list[Item] = []
        for _ in range(number + 2 * PATIENCE_SECONDS):
            item = self.take()
            if item is not None:
                taken.append(item)
            if len(taken) == number:
                break
        assert len(taken) == number
        return taken

    def gone(self) -> None:
        self.cluster.freeze()

    hung = gone

    def back(self) -> None:
        self.cluster.wake()


class HttpTarget(ProxiedTarget):
    cls = "http.HttpOutbound"
    has_depth = False
    keeps_twins = False

    def __init__(self) -> None:
        receiver = examples()["Receiver"]
        self.received: list[Item] = []
        handler = type("Handler", (receiver,), {"items": self.received, "known": set()})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        # A connection that is cut is what some tests do.
        self.server.handle_error = lambda *_: None  # type: ignore[method-assign]
        super().__init__(f"http://127.0.0.1:{self.server.server_port}/items")
        thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        thread.start()
        self.stack.callback(thread.join)
        self.stack.callback(self.server.server_close)
        self.stack.callback(self.server.shutdown)

    def init(self) -> Item:
        return {"url": self.url}

    def take(self) -> Item | None:
        return self.received.pop(0) if self.received else None


class FileTarget(Target):
    """Target of the outbound class in docs/outbounds.md."""

    cls = "files.FileOutbound"
    has_depth = False

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder / "out"
        self.folder.mkdir()
        self.lines: Iterator[str] | None = None

    def init(self) -> Item:
        return {"path": str(self.folder / "items.jsonl")}

    def take(self) -> Item | None:
        if self.lines is None:
            self.lines = iter((self.folder / "items.jsonl").read_text("utf-8").split("\n")[:-1])
        line = next(self.lines, None)
        return None if line is None else json.loads(line)

    def gone(self) -> None:
        self.folder.rename(self.folder.with_name("elsewhere"))

    hung = gone

    def back(self) -> None:
        if not self.folder.exists():
            self.folder.with_name("elsewhere").rename(self.folder)
