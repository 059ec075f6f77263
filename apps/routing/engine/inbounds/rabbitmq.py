"""Inbound for a RabbitMQ queue; the server redelivers unacknowledged items."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from apps.routing.engine.inbounds.base import (
    BadInit,
    Context,
    Finding,
    Handle,
    InboundClosed,
    Parameter,
    Taken,
)
from apps.routing.engine.inbounds.urls import has_placeholder
from yardkit.backoff import Backoff
from yardkit.broker.base import (
    BadBrokerURL,
    Broker,
    BrokerClosed,
    BrokerError,
    Delivery,
    QueueSpec,
    Subscription,
    Unroutable,
)
from yardkit.broker.factory import connect
from yardkit.broker.rabbitmq_messages import Tag
from yardkit.broker.rabbitmq_url import parse_rabbitmq_url
from yardkit.masks import without_secrets

logger = logging.getLogger(__name__)

_CONNECT_SECONDS: Final = 3.0
_CLOSE_SECONDS: Final = 3.0


class RabbitInbound:
    """Inbound for a RabbitMQ queue. A separate thread connects, so ``take`` keeps its timeout."""

    PARAMETERS: ClassVar[tuple[Parameter, ...]] = (
        Parameter("url", str, "amqp://user:password@host:5672/vhost", required=True, secret=True),
        Parameter("queue", str, "the queue", required=True),
        Parameter(
            "declare", bool, "make the queue, a durable one, where it is missing", default=True
        ),
    )

    @classmethod
    def check(cls, init: Mapping[str, Any]) -> list[tuple[str, Finding]]:
        findings = []
        if not has_placeholder(init["url"]):
            try:
                parse_rabbitmq_url(init["url"])
            except BadBrokerURL as error:
                text = without_secrets(str(error), init["url"])
                findings.append(("url", Finding("bad_url", text)))
        if not 0 < len(init["queue"].encode()) < 256:
            findings.append(
                ("queue", Finding("bad_parameter", "a queue's name has 1 to 255 bytes"))
            )
        return findings

    def __init__(self, context: Context, init: Mapping[str, Any]) -> None:
        self._url: str = init["url"]
        try:
            parse_rabbitmq_url(self._url)
        except BadBrokerURL as error:
            raise BadInit(without_secrets(str(error), self._url)) from None
        self._queue: str = init["queue"]
        self._declares: bool = init.get("declare", True)
        self._name = f"{context.consumer} {context.name}"
        self._prefetch = context.in_flight
        self._problem = "RabbitMQ: connecting"
        self._broker: Broker | None = None
        self._subscription: Subscription | None = None
        self._subscribed = threading.Event()
        self._closed = threading.Event()
        self._opener = threading.Thread(target=self._open, name=f"opens {context.name}")
        self._opener.daemon = True
        self._opener.start()

    @property
    def problem(self) -> str:
        broker = self._broker
        if self._problem or broker is None or broker.connected:
            return self._problem
        return f"RabbitMQ: no connection to {broker.url}"

    @property
    def late(self) -> int:
        """Always 0: late acks are discarded with their connection and cannot be counted."""
        return 0

    def take(self, most: int, timeout: float) -> list[Taken]:
        deadline = time.monotonic() + timeout
        self._subscribed.wait(timeout)
        subscription = self._subscription
        if self._closed.is_set():
            raise InboundClosed(self._queue)
        if subscription is None:
            return []
        try:
            deliveries = subscription.take(most, max(0.0, deadline - time.monotonic()))
        except BrokerClosed:
            raise InboundClosed(self._queue) from None
        return [self._taken(delivery) for delivery in deliveries]

    def ack(self, handles: Sequence[Handle]) -> None:
        subscription = self._subscription
        if subscription is not None and not self._closed.is_set():
            subscription.ack([handle for handle in handles if isinstance(handle, Delivery)])

    def back(self, handles: Sequence[Handle]) -> None:
        subscription = self._subscription
        if subscription is not None and not self._closed.is_set():
            given = [handle for handle in handles if isinstance(handle, Delivery)]
            # Requeue in the original order, because the server redelivers in the order received.
            subscription.requeue(sorted(given, key=_number))

    def depth(self) -> int | None:
        broker = self._broker
        if broker is None or not broker.connected or self._closed.is_set():
            return None
        try:
            depth = broker.depth(self._queue).ready
        except Unroutable:
            self._problem = self._missing
            return None
        except BrokerError as error:
            logger.debug("%s: no depth of %s: %s", self._name, self._queue, error)
            return None
        if self._problem == self._missing:
            self._problem = ""
        return depth

    def check_running(self, threads: int) -> list[Finding]:
        return []

    def close(self) -> None:
        if self._closed.is_set():
            return
        self._closed.set()
        self._subscribed.set()
        broker = self._broker
        if self._subscription is not None:
            self._subscription.close()
        if broker is not None:
            broker.close(_CLOSE_SECONDS)
        # If the thread is still connecting, it closes the new connection itself and exits.
        self._opener.join(1.0)

    @property
    def _missing(self) -> str:
        return f"RabbitMQ: there is no queue {self._queue!r}"

    def _taken(self, delivery: Delivery) -> Taken:
        where = f"{self._queue}#{delivery.message_id or _number(delivery)}"
        identity = ""
        if delivery.message_id:
            # With a hash of the body, because publishers may reuse an id for the next attempt.
            content = hashlib.blake2b(delivery.body, digest_size=16).hexdigest()
            identity = f"{delivery.message_id} {content}"
        return Taken(delivery.body, delivery, where, delivery.redelivered, identity)

    def _open(self) -> None:
        """Connect and subscribe; retry until it succeeds or the inbound is closed."""
        backoff = Backoff()
        while not self._closed.is_set():
            try:
                if self._broker is None:
                    self._broker = connect(self._url, name=self._name, timeout=_CONNECT_SECONDS)
                self._subscription = self._subscribe(self._broker)
            except Unroutable:
                self._problem = self._missing
            except BrokerError as error:
                self._problem = f"RabbitMQ: {without_secrets(str(error), self._url)}"
            else:
                self._problem = ""
                self._subscribed.set()
                break
            self._closed.wait(backoff.seconds())
        if self._closed.is_set() and self._broker is not None:
            self._broker.close(_CLOSE_SECONDS)

    def _subscribe(self, broker: Broker) -> Subscription:
        try:
            return broker.subscribe(self._queue, prefetch=self._prefetch)
        except Unroutable:
            if not self._declares:
                raise
        # Declare only a missing queue: an existing one may have been declared with other options.
        broker.declare(QueueSpec(self._queue))
        return broker.subscribe(self._queue, prefetch=self._prefetch)


def _number(delivery: Delivery) -> int:
    return delivery.tag.number if isinstance(delivery.tag, Tag) else 0
