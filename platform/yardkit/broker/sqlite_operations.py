"""Operations that callers submit to the I/O thread, and the batch of one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from yardkit.broker.base import Outgoing, Unroutable
from yardkit.broker.outgoing import new_future
from yardkit.broker.sqlite_records import SqliteTag, pack_envelope

if TYPE_CHECKING:
    from yardkit.broker.sqlite_subscription import SqliteSubscription
    from yardkit.broker.sqlite_worker import SqliteWorker

# A transaction stays short, so that the other processes need not wait long for theirs.
MAX_MESSAGES = 1000
MAX_BYTES = 8 * 1024 * 1024


class Publish:
    """One ``publish()`` call: messages with packed envelopes."""

    __slots__ = ("envelopes", "future", "made_at", "messages", "size")

    def __init__(self, messages: Sequence[Outgoing], made_at: float) -> None:
        self.messages = messages
        self.envelopes = [pack_envelope(message) for message in messages]
        self.size = sum(len(message.body) for message in messages)
        self.made_at = made_at
        self.future: Future[None] = new_future()


@dataclass(slots=True)
class AckOperation:
    """Acknowledge or requeue deliveries."""

    subscription: SqliteSubscription
    tags: list[SqliteTag]
    give_back: bool


@dataclass(slots=True)
class DeadLetterOperation:
    """Dead-letter a delivery."""

    subscription: SqliteSubscription
    tag: SqliteTag
    envelope: bytes


class Again:
    """Returned by a call that continues after the operations waiting behind it."""


@dataclass(slots=True)
class CallOperation:
    """Run a function in the I/O thread, in order."""

    function: Callable[[SqliteWorker], object]
    future: Future[object]


Operation = Publish | AckOperation | DeadLetterOperation | CallOperation


@dataclass(slots=True)
class OperationBatch:
    """Changes of one transaction, besides claims."""

    publishes: list[Publish] = field(default_factory=list)
    acks: list[tuple[int, int, int]] = field(default_factory=list)
    releases: list[tuple[int, int, int]] = field(default_factory=list)
    burials: list[tuple[int, int, int, bytes]] = field(default_factory=list)
    # Queues that get messages back, and so have news for other consumers.
    given_back: set[int] = field(default_factory=set)
    messages: int = 0
    size: int = 0

    @property
    def full(self) -> bool:
        return self.messages >= MAX_MESSAGES or self.size >= MAX_BYTES

    def __bool__(self) -> bool:
        return bool(self.publishes or self.acks or self.releases or self.burials)

    def add(self, operation: Publish | AckOperation | DeadLetterOperation) -> None:
        """Add an operation. Stale and repeated tags are dropped."""
        if isinstance(operation, Publish):
            self.publishes.append(operation)
            self.messages += len(operation.messages)
            self.size += operation.size
            return
        subscription = operation.subscription
        if isinstance(operation, DeadLetterOperation):
            if subscription.settle(operation.tag):
                tag = operation.tag
                row = (tag.id, subscription.consumer_id, tag.claim, operation.envelope)
                self.burials.append(row)
            return
        rows = [
            (subscription.consumer_id, tag.claim, tag.id)
            for tag in operation.tags
            if subscription.settle(tag)
        ]
        self.messages += len(rows)
        if operation.give_back:
            self.releases += rows
            self.given_back.add(subscription.queue_id)
        else:
            self.acks += rows

    def confirm(self, unroutable: dict[int, list[str]]) -> None:
        """Resolve the publishers' futures: the transaction is committed."""
        for position, publish in enumerate(self.publishes):
            keys = unroutable.get(position)
            if keys:
                publish.future.set_exception(Unroutable(keys))
            else:
                publish.future.set_result(None)

    def fail(self, error: Exception) -> None:
        """Fail unresolved publishers: nothing was committed."""
        for publish in self.publishes:
            if not publish.future.done():
                publish.future.set_exception(error)
