"""run_log_ingester: moves log lines from the queue into the log store, and applies retention."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from apps.joblogs.services import log_store, prune_lines, retention, store_lines
from apps.joblogs.stores.base import LogStoreUnavailable
from apps.joblogs.stores.factory import BadAddress
from apps.runtime.errors import DATABASE_ERRORS
from yardkit import failpoints, topology
from yardkit.broker import Broker, BrokerError, Delivery, Subscription, drain
from yardkit.clock import Clock
from yardkit.daemon import CannotStart
from yardkit.errors import first_line
from yardkit.guard import settle
from yardkit.outage import Outage
from yardkit.protocol import LogBatch, ProtocolError, decode
from yardkit.timers import Timers

logger = logging.getLogger(__name__)

POLL_SECONDS: Final = 0.2
# Messages per transaction; each has up to 500 lines.
BATCH: Final = 20
PRUNE_SECONDS: Final = 600.0
# Pauses between retries while the log store is unavailable; they grow exponentially.
FIRST_PAUSE_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 10.0
# These errors return the batch to its queue; any other error rejects the message that causes it.
_OUTAGES: Final = (LogStoreUnavailable, BrokerError, *DATABASE_ERRORS)


class LogDaemon:
    """Log ingester. Each step takes a batch of messages, stores their lines, then acknowledges
    them.

    While the log store is unavailable nothing is taken, so that lines wait in the queue, and
    senders buffer what the queue has no room for.

    Args:
        once: raise ``LogStoreUnavailable`` instead of waiting for the store.
    """

    def __init__(self, *, broker: Broker, clock: Clock, once: bool = False) -> None:
        self.broker = broker
        self.clock = clock
        self._once = once
        self._subscription: Subscription | None = None
        self._timers = Timers(lambda: self.clock.monotonic())
        self._outage = Outage(
            logger, "log store", first=FIRST_PAUSE_SECONDS, longest=LONGEST_PAUSE_SECONDS
        )

    def setup(self) -> None:
        """Subscribe to the queue. Raises ``CannotStart`` if the store can never be opened."""
        try:
            log_store()
        except BadAddress as error:
            raise CannotStart(f"LOGS_URL: {error}") from None
        except LogStoreUnavailable:
            # The first step logs the outage, and waits.
            pass
        # ``setup`` may run again: a subscription left open would keep its deliveries.
        self.teardown()
        self.broker.declare(*topology.SHARED)
        self._subscribe()

    def step(self) -> bool:
        """Store or delete lines; return True after any work, or while the store is unavailable."""
        if self._outage.lasting and self._timers.left("retry"):
            time.sleep(POLL_SECONDS)
            return True
        try:
            worked = self._work()
        except LogStoreUnavailable as error:
            if self._once:
                raise
            self._wait(error)
            return True
        self._outage.recovered()
        return worked

    def teardown(self) -> None:
        """Store the received lines and unsubscribe; unacknowledged messages return to the queue."""
        subscription = self._subscription
        try:
            if subscription is not None and not self._outage.lasting:
                for deliveries in drain(subscription, limit=BATCH):
                    self._store(subscription, deliveries)
        except (LogStoreUnavailable, BrokerError) as error:
            logger.warning("what has come goes back to its queue: %s", error)
        finally:
            self._let_go()

    def _let_go(self) -> None:
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None

    def detail(self) -> Mapping[str, Any]:
        """Return the state of the log store, for the process table."""
        return {"away": {"log store": self._outage.error} if self._outage.lasting else {}}

    def _subscribe(self) -> Subscription:
        if self._subscription is None:
            self._subscription = self.broker.subscribe(topology.LOGS.name, prefetch=2 * BATCH)
        return self._subscription

    def _work(self) -> bool:
        if self._outage.lasting:
            log_store().check()
        subscription = self._subscribe()
        # After an outage one message is a probe: a readable store need not be writable yet.
        most = 1 if self._outage.lasting else BATCH
        deliveries = subscription.take(most, timeout=POLL_SECONDS)
        stored = self._store(subscription, deliveries)
        return self._prune() > 0 or stored > 0

    def _wait(self, error: LogStoreUnavailable) -> None:
        self._timers.postpone("retry", self._outage.failed(error))
        # Give the messages back: a broker closes a channel whose deliveries stay unacknowledged for
        # long; and another ingester may reach the store.
        self._let_go()

    def _prune(self) -> int:
        if self._timers.left("prune"):
            return 0
        pruned = prune_lines(now=self.clock.now())
        if pruned:
            logger.info("deleted %d log lines", pruned)
        # More lines may be due for deletion; the next step continues.
        if pruned < retention.MOST:
            self._timers.postpone("prune", PRUNE_SECONDS)
        return pruned

    def _store(self, subscription: Subscription, deliveries: list[Delivery]) -> int:
        """Store and settle messages; return the number of those with log lines."""
        settled: set[int] = set()

        def work(part: Sequence[tuple[Delivery, LogBatch]]) -> None:
            self._store_part(subscription, part)
            settled.update(id(delivery) for delivery, _message in part)

        def reject(delivery: Delivery, reason: str) -> None:
            self._reject(subscription, delivery, reason)
            settled.add(id(delivery))

        try:
            accepted = list(_readable(deliveries, reject))
            settle(
                accepted,
                work,
                lambda pair, error: reject(pair[0], f"{type(error).__name__}: {first_line(error)}"),
                passing=_OUTAGES,
            )
        except BaseException:
            # Deliveries neither acknowledged nor requeued would count against the prefetch limit
            # until the end.
            subscription.requeue(
                [unsettled for unsettled in deliveries if id(unsettled) not in settled]
            )
            raise
        return len(accepted)

    def _store_part(
        self, subscription: Subscription, part: Sequence[tuple[Delivery, LogBatch]]
    ) -> None:
        refused = store_lines(batches=[message for _, message in part], now=self.clock.now())
        failpoints.hit("joblogs.before_ack")
        reasons = {id(item.batch): item.reason for item in refused}
        for delivery, message in part:
            if id(message) in reasons:
                self._reject(subscription, delivery, reasons[id(message)])
        subscription.ack([item for item, message in part if id(message) not in reasons])

    def _reject(self, subscription: Subscription, delivery: Delivery, reason: str) -> None:
        logger.warning("refused a message of %s: %s", delivery.queue, reason)
        subscription.dead_letter(delivery, reason)


def _readable(
    deliveries: Sequence[Delivery], reject: Callable[[Delivery, str], None]
) -> Iterator[tuple[Delivery, LogBatch]]:
    """Yield the valid messages, and reject the others."""
    for delivery in deliveries:
        try:
            message = decode(delivery.body)
        except ProtocolError as error:
            reject(delivery, str(error))
            continue
        if isinstance(message, LogBatch):
            yield delivery, message
        else:
            reject(delivery, f"{type(message).__name__} has no log lines")
