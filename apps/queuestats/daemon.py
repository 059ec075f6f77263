"""run_statistics: counters into the database, dead letters onto their page, housekeeping."""

from __future__ import annotations

import logging
from typing import Final

from apps.agents.services import prune_samples
from apps.queuestats.services import Report, close_books, store_counters
from apps.runtime.services import (
    prune,
    relay_outbox,
    store_dead_letters,
    subscribe_dead_letters,
)
from yardkit import failpoints, topology
from yardkit.broker import Broker, BrokerError, Delivery, Subscription
from yardkit.clock import Clock
from yardkit.protocol import CenterCounters, ProtocolError, RunCounters, decode

logger = logging.getLogger(__name__)

POLL_SECONDS: Final = 0.2
BATCH: Final = 500
RELAY_SECONDS: Final = 1.0
CLOSE_SECONDS: Final = 5.0
PRUNE_SECONDS: Final = 600.0


class StatisticsDaemon:
    """One round: take a batch, commit it, then acknowledge it."""

    def __init__(self, *, broker: Broker, clock: Clock) -> None:
        self.broker = broker
        self.clock = clock
        self._due: dict[str, float] = {}
        self._subscriptions: list[Subscription] = []
        self._relay_fails = False

    def setup(self) -> None:
        """Subscribe to the statistics and to the dead letters."""
        # It is tried again: a subscription left behind would keep its deliveries for ever.
        self.teardown()
        self.broker.declare(*topology.SHARED)
        self._statistics = self.broker.subscribe(topology.STATISTICS.name, prefetch=2 * BATCH)
        self._subscriptions.append(self._statistics)
        self._dead = subscribe_dead_letters(self.broker)
        self._subscriptions.append(self._dead)

    def step(self) -> bool:
        """True when anything was stored."""
        stored = self._store(self._statistics.take(BATCH, timeout=POLL_SECONDS))
        stored += store_dead_letters(subscription=self._dead)
        if self._is_due("relay", RELAY_SECONDS):
            stored += self._relay()
        if self._is_due("close", CLOSE_SECONDS):
            stored += close_books(now=self.clock.now())
        if self._is_due("prune", PRUNE_SECONDS):
            prune(now=self.clock.now())
            prune_samples(now=self.clock.now())
        return stored > 0

    def teardown(self) -> None:
        """Let go of both queues; what is not acknowledged goes back."""
        while self._subscriptions:
            self._subscriptions.pop().close()

    def _is_due(self, name: str, every: float) -> bool:
        now = self.clock.monotonic()
        due = now >= self._due.get(name, 0.0)
        if due:
            self._due[name] = now + every
        return due

    def _relay(self) -> int:
        """The net under every process that died between its commit and its publish."""
        try:
            published = relay_outbox(self.broker)
        except BrokerError as error:
            # No reason to stop: everything stays in the outbox.
            if not self._relay_fails:
                logger.warning("the outbox waits: %s", error)
            self._relay_fails = True
            return 0
        self._relay_fails = False
        return published

    def _store(self, deliveries: list[Delivery]) -> int:
        try:
            return self._store_taken(deliveries)
        except BaseException:
            # Taken and not settled, they would count against the prefetch for ever.
            self._statistics.requeue(deliveries)
            raise

    def _store_taken(self, deliveries: list[Delivery]) -> int:
        accepted: list[tuple[Delivery, Report]] = []
        for delivery in deliveries:
            try:
                message = decode(delivery.body)
            except ProtocolError as error:
                self._refuse(delivery, str(error))
                continue
            if isinstance(message, RunCounters | CenterCounters):
                accepted.append((delivery, message))
            else:
                self._refuse(delivery, f"{type(message).__name__} counts nothing")
        if accepted:
            messages = [message for _, message in accepted]
            refused = store_counters(messages=messages, now=self.clock.now())
            failpoints.hit("queuestats.before_ack")
            reasons = {id(one.message): one.reason for one in refused}
            for delivery, message in accepted:
                if id(message) in reasons:
                    self._refuse(delivery, reasons[id(message)])
            self._statistics.ack([d for d, message in accepted if id(message) not in reasons])
        return len(accepted)

    def _refuse(self, delivery: Delivery, reason: str) -> None:
        logger.warning("refused a message of %s: %s", delivery.queue, reason)
        self._statistics.dead_letter(delivery, reason)
