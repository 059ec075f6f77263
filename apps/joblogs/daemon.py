"""run_log_ingester: log lines from the queue into the log store, and old ones out of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from apps.joblogs.services import log_store, prune_lines, retention, store_lines
from apps.joblogs.stores.base import StoreUnavailable
from apps.joblogs.stores.opening import BadAddress
from yardkit import failpoints, topology
from yardkit.backoff import back_off
from yardkit.broker import Broker, BrokerError, Delivery, Subscription, drain
from yardkit.clock import Clock
from yardkit.daemon import CannotStart
from yardkit.protocol import LogBatch, ProtocolError, decode

logger = logging.getLogger(__name__)

POLL_SECONDS: Final = 0.2
# Messages of one transaction; each has up to 500 lines.
BATCH: Final = 20
PRUNE_SECONDS: Final = 600.0
# While the log store is away: pauses between two tries, which grow.
FIRST_PAUSE_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 10.0
MOST_REASON: Final = 300


@dataclass(slots=True)
class _Outage:
    """The log store is away. Times are of the monotonic clock."""

    reason: str
    began_at: float
    failures: int = 0
    again_at: float = 0.0


class LogDaemon:
    """One round: take a batch of messages, store their lines, then acknowledge them.

    While the log store is away nothing is taken, so that lines wait in the queue, and their senders
    keep what the queue has no room for.

    Args:
        once: raise ``StoreUnavailable`` in place of waiting until the store is back.
    """

    def __init__(self, *, broker: Broker, clock: Clock, once: bool = False) -> None:
        self.broker = broker
        self.clock = clock
        self._once = once
        self._prune_at = 0.0
        self._subscription: Subscription | None = None
        self._outage: _Outage | None = None

    def setup(self) -> None:
        """Subscribe to the queue of logs. Raises ``CannotStart`` for a store that cannot be."""
        try:
            log_store()
        except BadAddress as error:
            raise CannotStart(f"LOGS_URL: {error}") from None
        except StoreUnavailable:
            # The first step says so, and waits.
            pass
        # It is tried again: a subscription left behind would keep its deliveries for ever.
        self.teardown()
        self.broker.declare(*topology.SHARED)
        self._subscribe()

    def step(self) -> bool:
        """True when anything was stored or deleted, or waits for the store."""
        outage = self._outage
        if outage is not None and self.clock.monotonic() < outage.again_at:
            time.sleep(POLL_SECONDS)
            return True
        try:
            stored = self._work(outage)
        except StoreUnavailable as error:
            if self._once:
                raise
            self._wait(error)
            return True
        if outage is not None:
            seconds = self.clock.monotonic() - outage.began_at
            logger.info("the log store takes lines again, after %.0f s", seconds)
            self._outage = None
        return stored

    def teardown(self) -> None:
        """Store what has come, and let go of the queue; what is not acknowledged goes back."""
        subscription = self._subscription
        try:
            if subscription is not None and self._outage is None:
                for deliveries in drain(subscription, limit=BATCH):
                    self._store(subscription, deliveries)
        except (StoreUnavailable, BrokerError) as error:
            logger.warning("what has come goes back to its queue: %s", error)
        finally:
            self._let_go()

    def _let_go(self) -> None:
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None

    def detail(self) -> Mapping[str, Any]:
        """For the row of this process: whether the log store is away, and why."""
        outage = self._outage
        return {"away": {"log store": outage.reason} if outage is not None else {}}

    def _subscribe(self) -> Subscription:
        if self._subscription is None:
            self._subscription = self.broker.subscribe(topology.LOGS.name, prefetch=2 * BATCH)
        return self._subscription

    def _work(self, outage: _Outage | None) -> bool:
        if outage is not None:
            log_store().check()
        subscription = self._subscribe()
        # After an outage one message is the probe: what can be read may not yet be written.
        deliveries = subscription.take(BATCH if outage is None else 1, timeout=POLL_SECONDS)
        stored = self._store(subscription, deliveries)
        return self._prune() > 0 or stored > 0

    def _wait(self, error: StoreUnavailable) -> None:
        """The store is away, or still is."""
        now, reason = self.clock.monotonic(), str(error)[:MOST_REASON]
        if self._outage is None:
            logger.warning("log lines wait in the queue until the log store is back: %s", reason)
            self._outage = _Outage(reason, began_at=now)
        self._outage.reason = reason
        self._outage.failures += 1
        self._outage.again_at = now + back_off(
            self._outage.failures, FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS
        )
        # What is handed out and not acknowledged for long makes a broker close the channel; and
        # another ingester may reach the store.
        self._let_go()

    def _prune(self) -> int:
        if self.clock.monotonic() < self._prune_at:
            return 0
        pruned = prune_lines(now=self.clock.now())
        if pruned:
            logger.info("deleted %d log lines", pruned)
        # Else there may be more, and the next step goes on.
        if pruned < retention.MOST:
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
