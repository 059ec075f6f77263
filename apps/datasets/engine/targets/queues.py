"""Messages of Kafka and RabbitMQ. At least once: the identity of an item goes with its message."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from apps.datasets.engine.targets.base import Chunk, TargetUnavailable, message
from yardkit.broker import Broker, BrokerError, MessageRefused, Outgoing, QueueSpec, connect
from yardkit.errors import first_line

if TYPE_CHECKING:
    from confluent_kafka import Producer

CONFIRM_SECONDS: Final = 30.0
CONNECT_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.1


class KafkaTarget:
    """One topic; the key is the item's identity. Requires the extra ``kafka``."""

    most_items = 1000
    by_place = False

    def __init__(self, servers: str, topic: str, settings: Mapping[str, Any]) -> None:
        self._servers = servers
        self._topic = topic
        self._settings = settings
        self._producer: Producer | None = None

    def write(self, chunk: Chunk) -> Mapping[int, str]:
        from confluent_kafka import KafkaError, KafkaException

        too_large = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG_SIZE}
        refused: dict[int, str] = {}
        waiting = set(range(len(chunk.items)))
        failure = ""

        def answered(place: int, error: Any, _message: Any) -> None:
            nonlocal failure
            if error is None:
                waiting.discard(place)
            elif error.code() in too_large:
                waiting.discard(place)
                refused[place] = str(error.str())
            else:
                failure = str(error.str())

        try:
            producer = self._open()
            deadline = time.monotonic() + CONFIRM_SECONDS
            for place, item in enumerate(chunk.items):
                while True:
                    try:
                        producer.produce(
                            self._topic,
                            message(item),
                            item.id,
                            on_delivery=partial(answered, place),
                        )
                    except BufferError:
                        producer.poll(_POLL_SECONDS)
                        if time.monotonic() > deadline:
                            break
                        continue
                    except KafkaException as error:
                        if error.args[0].code() not in too_large:
                            raise
                        waiting.discard(place)
                        refused[place] = str(error.args[0].str())
                    break
            while waiting and not failure and time.monotonic() < deadline:
                producer.poll(_POLL_SECONDS)
        except KafkaException as error:
            self.close()
            raise TargetUnavailable(str(error.args[0].str())) from error
        if waiting:
            self.close()
            raise TargetUnavailable(failure or "Kafka did not acknowledge in time")
        return refused

    def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            producer.poll(0)

    def _open(self) -> Producer:
        if self._producer is None:
            try:
                from confluent_kafka import Producer
            except ImportError as error:
                raise TargetUnavailable("Kafka needs the extra kafka on this host") from error
            self._producer = Producer(
                {
                    **self._settings,
                    "bootstrap.servers": self._servers,
                    "acks": "all",
                    "enable.idempotence": True,
                    "linger.ms": 5,
                    "compression.type": "lz4",
                    "message.timeout.ms": int(CONFIRM_SECONDS * 1000),
                    "client.id": "crawlyard-delivery",
                    "log_level": 2,
                }
            )
        return self._producer


class QueueTarget:
    """One durable queue of a broker; the message ID is the item's identity.

    Args:
        broker: returns that of the platform; None: connect to ``url``.
    """

    most_items = 1000
    by_place = False

    def __init__(
        self,
        queue: str,
        *,
        url: str = "",
        broker: Callable[[], Broker] | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._check = check
        self._queue = queue
        self._url = url
        self._given = broker
        self._own: Broker | None = None
        self._is_declared = False

    def write(self, chunk: Chunk) -> Mapping[int, str]:
        messages = [
            Outgoing(
                message(item), key=self._queue, message_id=item.id, content_type="application/json"
            )
            for item in chunk.items
        ]
        try:
            broker = self._open()
            if not self._is_declared:
                broker.declare(QueueSpec(self._queue))
                self._is_declared = True
            try:
                broker.publish(messages).result(CONFIRM_SECONDS)
            except MessageRefused as error:
                return self._one_by_one(broker, messages, error)
        except (BrokerError, FutureTimeoutError) as error:
            # The queue may have been deleted.
            self._is_declared = False
            raise TargetUnavailable(first_line(error) or "no confirmation in time") from error
        return {}

    def _one_by_one(
        self, broker: Broker, messages: list[Outgoing], error: MessageRefused
    ) -> Mapping[int, str]:
        if len(messages) == 1:
            return {0: first_line(error)}
        refused: dict[int, str] = {}
        for place, one in enumerate(messages):
            self._check()
            try:
                broker.publish([one]).result(CONFIRM_SECONDS)
            except MessageRefused as reason:
                refused[place] = first_line(reason)
        return refused

    def close(self) -> None:
        broker, self._own = self._own, None
        if broker is not None:
            broker.close(CONNECT_SECONDS)

    def _open(self) -> Broker:
        if self._given is not None:
            return self._given()
        if self._own is None:
            self._own = connect(self._url, name="delivery", timeout=CONNECT_SECONDS)
        return self._own
