"""run_log_ingester: log lines from the queue into the database, and old ones out of it."""

from __future__ import annotations

import logging
from typing import Final

from apps.joblogs.services import prune_lines, store_lines
from yardkit import failpoints, topology
from yardkit.broker import Broker, Delivery, Subscription
from yardkit.clock import Clock
from yardkit.protocol import LogBatch, ProtocolError, decode

logger = logging.getLogger(__name__)

POLL_SECONDS: Final = 0.2
# Messages of one transaction; each has up to 500 lines.
BATCH: Final = 20
PRUNE_SECONDS: Final = 600.0


class LogDaemon:
    """One round: take a batch of messages, commit their lines, then acknowledge them.

    Args:
        days: older lines are deleted.
    """

    def __init__(self, *, broker: Broker, clock: Clock, days: int) -> None:
        self.broker = broker
        self.clock = clock
        self.days = days
        self._prune_at = 0.0
        self._subscription: Subscription | None = None

    def setup(self) -> None:
        """Subscribe to the queue of logs."""
        # It is tried again: a subscription left behind would keep its deliveries for ever.
        self.teardown()
        self.broker.declare(*topology.SHARED)
        self._subscription = self.broker.subscribe(topology.LOGS.name, prefetch=2 * BATCH)

    def step(self) -> bool:
        """True when anything was stored or deleted."""
        assert self._subscription is not None  # noqa: S101 - setup comes first
        deliveries = self._subscription.take(BATCH, timeout=POLL_SECONDS)
        stored = self._store(self._subscription, deliveries)
        return self._prune() > 0 or stored > 0

    def teardown(self) -> None:
        """Let go of the queue; what is not acknowledged goes back."""
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None

    def _prune(self) -> int:
        if self.clock.monotonic() < self._prune_at:
            return 0
        pruned = prune_lines(now=self.clock.now(), days=self.days)
        if pruned:
            # More may be too old: the next step goes on.
            logger.info("deleted %d log lines older than %d days", pruned, self.days)
        else:
            self._prune_at = self.clock.monotonic() + PRUNE_SECONDS
        return pruned

    def _store(self, subscription: Subscription, deliveries: list[Delivery]) -> int:
        try:
            return self._store_taken(subscription, deliveries)
        except BaseException:
            # Taken and not settled, they would count against the prefetch for ever.
            subscription.requeue(deliveries)
            raise

    def _store_taken(self, subscription: Subscription, deliveries: list[Delivery]) -> int:
        accepted: list[tuple[Delivery, LogBatch]] = []
        for delivery in deliveries:
            try:
                message = decode(delivery.body)
            except ProtocolError as error:
                self._refuse(subscription, delivery, str(error))
                continue
            if isinstance(message, LogBatch):
                accepted.append((delivery, message))
            else:
                self._refuse(subscription, delivery, f"{type(message).__name__} has no log lines")
        if accepted:
            batches = [message for _, message in accepted]
            refused = store_lines(batches=batches, now=self.clock.now())
            failpoints.hit("joblogs.before_ack")
            reasons = {id(one.batch): one.reason for one in refused}
            for delivery, message in accepted:
                if id(message) in reasons:
                    self._refuse(subscription, delivery, reasons[id(message)])
            subscription.ack([d for d, message in accepted if id(message) not in reasons])
        return len(accepted)

    def _refuse(self, subscription: Subscription, delivery: Delivery, reason: str) -> None:
        logger.warning("refused a message of %s: %s", delivery.queue, reason)
        subscription.dead_letter(delivery, reason)
