"""What every broker adapter offers. Both adapters pass tests/yardkit/test_broker_contract.py.

All methods are thread-safe. An adapter owns one I/O thread that connects, reconnects with
back-off, re-declares what this object declared and re-subscribes; callers never see a socket.
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
    """Base of everything a broker raises on purpose."""


class BadBrokerURL(BrokerError, ValueError):
    """The URL names no broker this code knows; the text says what is wrong with it."""


class BrokerUnavailable(BrokerError):
    """No connection, or it was lost before the confirm came: the outcome is unknown, try again."""


class MessageRefused(BrokerUnavailable):
    """The broker refused one of the messages under way and let go of all: one alone is the one."""


class BrokerClosed(BrokerError):
    """``close()`` was called on this broker."""


class Unroutable(BrokerError):
    """Mandatory messages that no queue wanted. ``keys`` lists their routing keys."""

    def __init__(self, keys: Sequence[str]) -> None:
        self.keys = list(keys)
        super().__init__(f"no queue for: {', '.join(sorted(set(self.keys)))}")


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """A queue as every process that uses it must declare it.

    ``dead_letter``: messages that expire here move to ``DEAD_QUEUE`` with reason "expired".
    ``expires_seconds``: the queue deletes itself, with what is in it, after so long without any
    consumer. ``message_ttl_seconds``: upper limit for the life of each message in it.
    """

    name: str
    durable: bool = True
    max_priority: int = 0
    dead_letter: bool = False
    expires_seconds: float | None = None
    message_ttl_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to publish. ``exchange`` "" means straight to the queue named ``key``."""

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
    """A received message. ``tag`` is the adapter's own."""

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
    """``ready`` waits for a consumer, ``unacked`` is handed out (-1 where the broker hides it)."""

    ready: int
    unacked: int
    consumers: int


@runtime_checkable
class Subscription(Protocol):
    """One consumer of one queue. At most ``prefetch`` unacknowledged deliveries at once."""

    @property
    def queue(self) -> str: ...

    def take(self, limit: int = 100, timeout: float = 0.0) -> list[Delivery]:
        """Up to ``limit`` deliveries; waits ``timeout`` seconds for the first one.

        Raises ``BrokerClosed`` once the broker or the subscription is closed.
        """

    def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Done with these. An ack of a delivery from before a reconnect is ignored."""

    def requeue(self, deliveries: Sequence[Delivery]) -> None:
        """Give these back; they come again with ``redelivered``."""

    def dead_letter(self, delivery: Delivery, reason: str) -> None:
        """Move this one to ``DEAD_QUEUE`` with the reason: confirmed there before acked here."""

    def cancel(self) -> None:
        """Ask for no more. What has come by then can still be taken and settled.

        ``take`` does not wait any more. Never raises. Whoever ends closes only then: what is open
        when it closes comes to another one as ``redelivered``. See ``drain``.
        """

    def close(self) -> None:
        """Stop consuming; what is unacknowledged goes back to the queue."""


@runtime_checkable
class Broker(Protocol):
    """A connection to a broker."""

    @property
    def url(self) -> str:
        """The URL without its password: safe to log."""

    @property
    def connected(self) -> bool: ...

    def declare(self, *queues: QueueSpec) -> None:
        """Create queues that are missing; repeated after each reconnect. ``DEAD_QUEUE`` exists."""

    def declare_exchange(self, name: str, kind: Literal["fanout", "topic"]) -> None: ...

    def bind(self, queue: str, exchange: str, key: str = "#") -> None:
        """Topic keys use ``*`` for one word and ``#`` for any number; fanout ignores the key."""

    def publish(self, messages: Sequence[Outgoing]) -> Future[None]:
        """Resolves when the broker has confirmed every message.

        Fails with ``Unroutable`` (the routable ones of the batch were still delivered) or
        ``BrokerUnavailable``. Messages of successive calls to one queue keep their order.
        """

    def subscribe(
        self, queue: str, *, prefetch: int = 100, on_ready: Callable[[], None] | None = None
    ) -> Subscription:
        """``on_ready`` is called from the I/O thread when deliveries wait; it must not block."""

    def request(self, message: Outgoing, timeout: float) -> Delivery:
        """Publish and wait for one reply. ``TimeoutError`` when none came in time."""

    def reply(self, to: Delivery, body: bytes) -> Future[None]:
        """Answer a message that came through ``request``; harmless if the asker is gone."""

    def depth(self, queue: str) -> QueueDepth:
        """Raises ``Unroutable`` for a queue that does not exist."""

    def purge(self, queue: str) -> int: ...

    def delete(self, queue: str) -> None: ...

    def close(self, timeout: float = 3.0) -> None:
        """Flush pending publishes and acks for up to ``timeout`` seconds, then let go."""
