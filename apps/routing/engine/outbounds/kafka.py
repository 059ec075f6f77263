"""Outbound for a Kafka topic; requires the extra ``kafka``, which is imported on first use."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from apps.routing.engine.outbounds.base import (
    CLOSED,
    DELIVERED,
    Batch,
    Encoded,
    Outcome,
    Sent,
    Settings,
    away,
    refused,
)
from apps.routing.engine.outbounds.parameters import Parameter, name_of, read
from apps.routing.engine.rules import Outbound as Rule

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, Producer

logger = logging.getLogger(__name__)

SERVERS: Final = "bootstrap.servers"
_POLL_SECONDS: Final = 0.1
# Settings that rules may not override: delivery guarantees, and plug-ins, which run code.
_OURS: Final = frozenset(
    {
        "acks",
        "request.required.acks",
        "enable.idempotence",
        "transactional.id",
        "message.timeout.ms",
        "delivery.timeout.ms",
        "plugin.library.paths",
    }
)
_TOPIC_CHARACTERS: Final = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
)


def _check_settings(settings: Mapping[str, Any]) -> str:
    if not settings.get(SERVERS) or not isinstance(settings[SERVERS], str):
        return f"{SERVERS} is needed, such as kafka1:9092,kafka2:9092"
    if "{" in settings[SERVERS] or "://" in settings[SERVERS]:
        return f"{SERVERS} is a list of host:port, such as kafka1:9092,kafka2:9092"
    for name, value in settings.items():
        if name in _OURS:
            return f"{name} is not for a rule to set"
        if not isinstance(value, str | int | float | bool):
            return f"{name} must be a text, a number or true or false"
    return ""


def _check_topic(value: str) -> str:
    if not 0 < len(value) <= 249 or set(value) - _TOPIC_CHARACTERS or value in (".", ".."):
        return "a topic has 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-'"
    return ""


class KafkaOutbound:
    """Outbound for one topic; each message is acknowledged by all in-sync replicas.

    ``key`` names a key of the message whose value is the partition key: messages with equal values
    go to the same partition and keep their order.
    """

    parameters: ClassVar[Mapping[str, Parameter]] = {
        "topic": Parameter(str, required=True, check=_check_topic),
        "producer_settings": Parameter(dict, required=True, check=_check_settings),
        "key": Parameter(str, default="", check=name_of("a key", 256)),
        # Consumer group whose lag is the depth of the outbound; "" for none.
        "consumer_group": Parameter(str, default="", check=name_of("a group", 255)),
    }
    default_expects_result: ClassVar[bool] = False

    def __init__(self, rule: Rule, settings: Settings) -> None:
        """Raise ``ValueError`` for invalid parameters, ``ImportError`` without the extra."""
        import confluent_kafka

        values = read(rule.init, self.parameters)
        self._kafka = confluent_kafka
        self._topic: str = values["topic"]
        self._settings: dict[str, Any] = dict(values["producer_settings"])
        self._key: str = values["key"]
        self._group: str = values["consumer_group"]
        self._timeout = settings.timeout_seconds
        self._client_name = settings.client_name
        self._lock = threading.Lock()
        self._depth_lock = threading.Lock()
        self._producer: Producer | None = None
        self._consumer: Consumer | None = None
        self._error = ""
        self._is_closed = False
        # Create the producer now, so that invalid settings fail here and not on the first send.
        self._make_producer()

    def send(self, batch: Sequence[Sent]) -> list[Outcome]:
        """See ``Outbound``."""
        work = Batch(batch)
        deadline = time.monotonic() + self._timeout
        with self._lock:
            if self._is_closed:
                return [CLOSED] * len(batch)
            producer = self._producer or self._make_producer()
            waiting: dict[int, Encoded] = {}
            self._produce(producer, work, waiting, deadline)
            while waiting and time.monotonic() < deadline:
                producer.poll(_POLL_SECONDS)
            late = away("timeout", self._why("no acknowledgement from Kafka in time"))
            if waiting:
                work.settle(list(waiting.values()), late)
                # Purge the client's queue: a message reported as away must not be sent later.
                self._drop(producer)
        return work.finish(late)

    def depth(self) -> int | None:
        """Return the lag of ``consumer_group``; None if no group is configured."""
        if not self._group:
            return None
        deadline = time.monotonic() + self._timeout
        with self._depth_lock:
            if self._is_closed:
                return None
            try:
                return self._lag(self._consumer or self._make_consumer(), deadline)
            except (self._kafka.KafkaException, TimeoutError) as error:
                logger.debug("no lag of %s: %s", self._topic, error)
                return None

    def close(self) -> None:
        """See ``Outbound``."""
        with self._lock, self._depth_lock:
            self._is_closed = True
            if self._producer is not None:
                self._drop(self._producer)
            consumer, self._consumer = self._consumer, None
            if consumer is not None:
                consumer.close()

    # --- sending, with the lock held -----------------------------------------------------------

    def _make_producer(self) -> Producer:
        milliseconds = max(int(self._timeout * 1000), 10)
        try:
            self._producer = self._kafka.Producer(
                {
                    "linger.ms": 5,
                    "compression.type": "lz4",
                    **self._common(),
                    "acks": "all",
                    "enable.idempotence": True,
                    "message.timeout.ms": milliseconds,
                },
                logger=logger,
            )
        except self._kafka.KafkaException as error:
            raise ValueError(f"init.producer_settings: {error.args[0].str()}") from None
        return self._producer

    def _common(self) -> dict[str, Any]:
        milliseconds = max(int(self._timeout * 1000), 10)
        return {
            "client.id": self._client_name,
            "socket.timeout.ms": milliseconds,
            "socket.connection.setup.timeout.ms": max(milliseconds, 1000),
            "reconnect.backoff.max.ms": 1000,
            **self._settings,
            "error_cb": self._noted,
            # Critical only: the library logs each lost connection as an error, but reconnects.
            "log_level": 2,
        }

    def _produce(
        self, producer: Producer, work: Batch, waiting: dict[int, Encoded], deadline: float
    ) -> None:
        for message in work.ready:
            while True:
                try:
                    waiting[message.place] = message
                    producer.produce(
                        self._topic,
                        message.body,
                        self._key_of(message.sent.message),
                        on_delivery=partial(self._answered, work, waiting, message),
                    )
                except BufferError:
                    del waiting[message.place]
                    if time.monotonic() > deadline:
                        return
                    producer.poll(_POLL_SECONDS)
                    continue
                except self._kafka.KafkaException as error:
                    del waiting[message.place]
                    work.settle([message], self._outcome(error.args[0]))
                break
            producer.poll(0)

    def _answered(
        self,
        work: Batch,
        waiting: dict[int, Encoded],
        message: Encoded,
        error: KafkaError | None,
        _: Message,
    ) -> None:
        waiting.pop(message.place, None)
        work.settle([message], DELIVERED if error is None else self._outcome(error))

    def _outcome(self, error: KafkaError) -> Outcome:
        codes = self._kafka.KafkaError
        if error.code() in (codes.MSG_SIZE_TOO_LARGE, codes.INVALID_MSG_SIZE):
            return refused("too_large", f"Kafka does not take a message of this size: {error}")
        if error.code() == codes.INVALID_RECORD:
            return refused("refused", f"Kafka refused the message: {error}")
        if error.fatal():
            self._producer = None
        return away("unconfirmed", self._why(error.str()))

    def _key_of(self, message: Mapping[str, Any]) -> bytes | None:
        if not self._key:
            return None
        value = message.get(self._key)
        if value is None and isinstance(message.get("task_params"), Mapping):
            value = message["task_params"].get(self._key)
        return None if value is None else str(value).encode("utf-8", "backslashreplace")

    def _drop(self, producer: Producer) -> None:
        self._producer = None
        producer.purge(in_queue=True, in_flight=True, blocking=False)
        producer.poll(0)

    def _noted(self, error: KafkaError) -> None:
        self._error = error.str()

    def _why(self, text: str) -> str:
        return f"{text} ({self._error})" if self._error else text

    # --- consumer lag --------------------------------------------------------------------------

    def _make_consumer(self) -> Consumer:
        # The consumer never subscribes, so it does not become a member of the group.
        self._consumer = self._kafka.Consumer(
            {**self._common(), "group.id": self._group, "enable.auto.commit": False}, logger=logger
        )
        return self._consumer

    def _lag(self, consumer: Consumer, deadline: float) -> int | None:
        def left() -> float:
            seconds = deadline - time.monotonic()
            if seconds <= 0:
                raise TimeoutError
            return seconds

        # Poll, so that log lines and errors do not accumulate in the client.
        with contextlib.suppress(RuntimeError):
            consumer.poll(0)
        topic = consumer.list_topics(self._topic, timeout=left()).topics[self._topic]
        if topic.error is not None:
            return None
        partitions = [
            self._kafka.TopicPartition(self._topic, number) for number in topic.partitions
        ]
        lag = 0
        for partition in consumer.committed(partitions, timeout=left()):
            marks = consumer.get_watermark_offsets(partition, timeout=left())
            if marks is None:
                raise TimeoutError
            low, high = marks
            # Without a committed offset (a negative number) all messages count as lag.
            lag += high - max(partition.offset, low)
        return lag
