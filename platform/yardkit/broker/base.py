"""The broker port. Both adapters pass tests/yardkit/test_broker_contract.py.

All methods are thread-safe. An adapter owns one I/O thread that connects, reconnects with
back-off, declares queues again and re-subscribes; callers never see a socket.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

# Where rejected messages, and expired ones of queues that ask for it, end up with a reason.
DEAD_QUEUE = "dead"

# Headers a dead letter carries beside its own.
HEADER_REASON = "x-crawlyard-reason"
HEADER_QUEUE = "x-crawlyard-queue"
HEADER_DIED_AT = "x-crawlyard-died-at"


class BrokerError(Exception):
    """Base class of broker errors."""


class BadBrokerURL(BrokerError, ValueError):
    """The URL names no supported broker; the text says why."""


class BrokerUnavailable(BrokerError):
    """Not connected, or disconnected before the confirm: the outcome is unknown, retry."""


class MessageRefused(BrokerUnavailable):
    """The broker closed the channel over one of several messages: retry them one by one."""


class BrokerClosed(BrokerError):
    """``close()`` was called on this broker."""


class Unroutable(BrokerError):
    """Mandatory messages without a queue. ``keys`` lists their routing keys."""

    def __init__(self, keys: Sequence[str]) -> None:
        self.keys = list(keys)
        super().__init__(f"no queue for: {', '.join(sorted(set(self.keys)))}")


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """Declaration of a queue, identical in every process that uses it.

    ``dead_letter``: expired messages move to ``DEAD_QUEUE`` with reason "expired".
    ``expires_seconds``: the queue is deleted, with its messages, after this time without a
    consumer. ``message_ttl_seconds``: maximum TTL of each message.
    """

    name: str
    durable: bool = True
    max_priority: int = 0
    dead_letter: bool = False
    expires_seconds: float | None = None
    message_ttl_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to publish. ``exchange`` "" sends it to the queue named ``key``."""

    body: bytes
    key: str
    exchange: str = ""
    ttl_seconds: float | None = None
    priority: int = 0
    persistent: bool = True
    mandatory: bool = True
    message_id: str = ""
    reply_to: str = ""
    correlation_id: str = ""
    headers: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    # For consumers that are none of the platform: libraries decode a body by it.
    content_type: str = ""


# Not frozen: each message makes one, and that would take three times as long.
@dataclass(slots=True)
class Delivery:
    """A received message. ``tag`` is private to the adapter."""

    body: bytes
    queue: str
    exchange: str
    key: str
    redelivered: bool
    priority: int
    message_id: str
    reply_to: str
    correlation_id: str
    headers: Mapping[str, str | int | float | bool]
    tag: object


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """``ready``: waiting; ``unacked``: delivered and not acknowledged (-1: unknown)."""

    ready: int
    unacked: int
    consumers: int


@runtime_checkable
class Subscription(Protocol):
    """One consumer of one queue, with at most ``prefetch`` unacknowledged deliveries."""

    @property
    def queue(self) -> str: ...

    def take(self, limit: int = 100, timeout: float = 0.0) -> list[Delivery]:
        """Return up to ``limit`` deliveries, waiting up to ``timeout`` seconds for the first one.

        Raises ``BrokerClosed`` once the broker or the subscription is closed.
        """

    def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledge. Deliveries from before a reconnect are ignored."""

    def requeue(self, deliveries: Sequence[Delivery]) -> None:
        """Return deliveries to the queue; they are redelivered with ``redelivered`` set."""

    def dead_letter(self, delivery: Delivery, reason: str) -> None:
        """Move a delivery to ``DEAD_QUEUE`` with the reason: confirmed there before acknowledged
        here.
        """

    def cancel(self) -> None:
        """Stop receiving. Deliveries that have arrived can still be taken and acknowledged.

        ``take`` no longer waits. Never raises. Close afterwards: unacknowledged deliveries are then
        redelivered to another consumer. See ``drain``.
        """

    def close(self) -> None:
        """Stop consuming; unacknowledged deliveries return to the queue."""


@runtime_checkable
class Broker(Protocol):
    """A connection to a broker."""

    @property
    def url(self) -> str:
        """The URL without its password: safe to log."""

    @property
    def connected(self) -> bool: ...

    def declare(self, *queues: QueueSpec) -> None:
        """Create missing queues, and again after each reconnect. ``DEAD_QUEUE`` always exists."""

    def declare_exchange(self, name: str, kind: Literal["fanout", "topic"]) -> None: ...

    def bind(self, queue: str, exchange: str, key: str = "#") -> None:
        """Bind a queue. Topic keys use ``*`` for one word and ``#`` for any number; fanout ignores
        the key.
        """

    def publish(self, messages: Sequence[Outgoing]) -> Future[None]:
        """Publish; the future resolves when the broker has confirmed every message.

        Fails with ``Unroutable`` (routable messages of the batch were delivered) or
        ``BrokerUnavailable``. Messages of successive calls to one queue keep their order.
        """

    def subscribe(
        self, queue: str, *, prefetch: int = 100, on_ready: Callable[[], None] | None = None
    ) -> Subscription:
        """Subscribe. ``on_ready`` is called from the I/O thread when deliveries wait; it must not
        block.
        """

    def request(self, message: Outgoing, timeout: float) -> Delivery:
        """Publish and wait for one reply. Raises ``TimeoutError``."""

    def reply(self, to: Delivery, body: bytes) -> Future[None]:
        """Reply to a message sent by ``request``; harmless if the caller is gone."""

    def depth(self, queue: str) -> QueueDepth:
        """Return the depth of a queue. Raises ``Unroutable`` for one that does not exist."""

    def purge(self, queue: str) -> int: ...

    def delete(self, queue: str) -> None: ...

    def close(self, timeout: float = 3.0) -> None:
        """Flush pending publishes and acknowledgements for up to ``timeout`` seconds, then
        disconnect.
        """
