"""Queue in the platform's broker, RabbitMQ or the SQLite file, for installations without Redis.

The broker redelivers entries of a lost consumer.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import TimeoutError as ConfirmTimeout
from typing import Final

from apps.requeststore.engine.entity import MAX_PRIORITY
from apps.requeststore.engine.errors import BadEntry, RequestStoreUnavailable
from apps.requeststore.queues.base import QueueStats, TakenEntry
from apps.requeststore.queues.entries import level_of, read_entry, write_entry
from apps.requeststore.stores.base import QueueEntry
from yardkit.broker import (
    Broker,
    BrokerClosed,
    BrokerError,
    Delivery,
    Outgoing,
    QueueSpec,
    Subscription,
    Unroutable,
)

logger = logging.getLogger(__name__)

_CONFIRM_SECONDS: Final = 30.0
# Prefetched entries are unavailable to other consumers.
PREFETCH: Final = 200


class BrokerRequestQueue:
    """See ``base.RequestQueue``. ``prefetch``: limit of entries taken and not settled.

    The broker object is shared and stays open when the queue is closed.
    """

    def __init__(self, broker: Broker, name: str, *, prefetch: int = PREFETCH) -> None:
        self._broker = broker
        self._spec = QueueSpec(name, max_priority=MAX_PRIORITY)
        self._prefetch = prefetch
        self._opening = threading.Lock()
        self._declared = False
        self._subscription: Subscription | None = None
        self._closed = False

    def push(self, entries: Sequence[QueueEntry], *, priority: int = 0) -> None:
        """See ``base.RequestQueue``."""
        if not entries:
            return
        level = level_of(priority)
        messages = [
            Outgoing(write_entry(entry), self._spec.name, priority=level) for entry in entries
        ]
        try:
            self._declare()
            try:
                self._broker.publish(messages).result(_CONFIRM_SECONDS)
            except Unroutable:
                # The queue was deleted meanwhile, so none of them was enqueued.
                self._broker.declare(self._spec)
                self._broker.publish(messages).result(_CONFIRM_SECONDS)
        except (BrokerError, ConfirmTimeout) as error:
            raise self._unavailable(error) from error

    def take(self, number: int, *, timeout: float) -> list[TakenEntry]:
        """See ``base.RequestQueue``."""
        deadline = time.monotonic() + timeout
        try:
            subscription = self._subscribed()
            while True:
                left = max(0.0, deadline - time.monotonic())
                deliveries = subscription.take(number, left)
                entries_taken = [
                    taken
                    for delivery in deliveries
                    if (taken := self._read(subscription, delivery))
                ]
                if entries_taken or (not deliveries and not self._broker.connected):
                    break
                if time.monotonic() >= deadline:
                    return []
        except BrokerError as error:
            raise self._unavailable(error) from error
        if not entries_taken:
            raise RequestStoreUnavailable(f"the broker at {self._broker.url} does not answer")
        return entries_taken

    def settle(self, taken: Sequence[TakenEntry]) -> None:
        """See ``base.RequestQueue``."""
        if self._subscription is not None:
            self._subscription.ack(_deliveries(taken))

    def requeue(self, taken: Sequence[TakenEntry]) -> None:
        """See ``base.RequestQueue``."""
        if self._subscription is not None:
            self._subscription.requeue(_deliveries(taken))

    def rescue(self) -> int:
        """Return 0: the broker redelivers by itself."""
        return 0

    def stats(self) -> QueueStats:
        """See ``base.RequestQueue``. Prefetched entries count as taken, which RabbitMQ does not
        report.
        """
        try:
            self._declare()
            depth = self._broker.depth(self._spec.name)
        except BrokerError as error:
            raise self._unavailable(error) from error
        return QueueStats(depth.ready, depth.unacked if depth.unacked >= 0 else None)

    def clear(self) -> int:
        """See ``base.RequestQueue``."""
        try:
            self._declare()
            return self._broker.purge(self._spec.name)
        except BrokerError as error:
            raise self._unavailable(error) from error

    def close(self) -> None:
        """See ``base.RequestQueue``."""
        with self._opening:
            self._closed = True
            subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.close()

    def _read(self, subscription: Subscription, delivery: Delivery) -> TakenEntry | None:
        try:
            return TakenEntry(read_entry(delivery.body), delivery)
        except BadEntry as error:
            logger.warning("%s: a dead letter: %s", self._spec.name, error)
            subscription.dead_letter(delivery, str(error))
            return None

    def _declare(self) -> None:
        if not self._declared:
            self._broker.declare(self._spec)
            self._declared = True

    def _subscribed(self) -> Subscription:
        with self._opening:
            if self._closed:
                raise RequestStoreUnavailable("this queue is closed")
            if self._subscription is None:
                self._declare()
                self._subscription = self._broker.subscribe(
                    self._spec.name, prefetch=self._prefetch
                )
            return self._subscription

    def _unavailable(self, error: BaseException) -> RequestStoreUnavailable:
        if isinstance(error, BrokerClosed):
            return RequestStoreUnavailable("the connection to the broker was closed here")
        text = str(error) or "no confirm in time"
        return RequestStoreUnavailable(f"the broker at {self._broker.url}: {text}")


def _deliveries(taken: Sequence[TakenEntry]) -> list[Delivery]:
    return [entry.token for entry in taken if isinstance(entry.token, Delivery)]
