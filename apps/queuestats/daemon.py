"""run_statistics: stores counters and dead letters, relays the outbox, applies retention."""

from __future__ import annotations

import logging
from typing import Final

from apps.agents.services import prune_samples
from apps.queuestats.services import (
    Report,
    finalize_counters,
    prune_series,
    record_observed_seconds,
    store_counters,
    store_samples,
)
from apps.runtime.errors import DATABASE_ERRORS
from apps.runtime.services import prune, relay_outbox, store_dead_letters, subscribe_dead_letters
from yardkit import failpoints, topology
from yardkit.broker import Broker, BrokerError, Delivery, Subscription, drain
from yardkit.broker.gateway import sender_of, sender_problem
from yardkit.clock import Clock
from yardkit.outage import Outage
from yardkit.protocol import (
    AnyMessage,
    CenterCounters,
    PageCounters,
    ProtocolError,
    RunCounters,
    Samples,
    decode,
)
from yardkit.shared_queues import declare_shared
from yardkit.timers import Timers

logger = logging.getLogger(__name__)

POLL_SECONDS: Final = 0.2
# A consumer that falls behind finds several reports of each run in one batch; only the newest is
# written, so it catches up.
BATCH: Final = 2_000
RELAY_SECONDS: Final = 1.0
CLOSE_SECONDS: Final = 5.0
PRUNE_SECONDS: Final = 600.0


class StatisticsDaemon:
    """Takes a batch of reports, commits it, then acknowledges it."""

    def __init__(self, *, broker: Broker, clock: Clock) -> None:
        self.broker = broker
        self.clock = clock
        self._timers = Timers(lambda: self.clock.monotonic())
        self._subscriptions: list[Subscription] = []
        self._relay_outage = Outage(logger, "outbox relay")
        # Seconds before this one are recorded as observed; 0 while the broker is unreachable.
        self._observed_until = 0

    def setup(self) -> None:
        """Subscribe to the queues of statistics and of dead letters."""
        # Setup is retried after a failure: an open subscription would keep its deliveries.
        self._close()
        declare_shared(self.broker)
        self._statistics = self.broker.subscribe(topology.STATISTICS.name, prefetch=2 * BATCH)
        self._subscriptions.append(self._statistics)
        self._dead = subscribe_dead_letters(self.broker)
        self._subscriptions.append(self._dead)

    def step(self) -> bool:
        """Store one batch; return True when anything was stored."""
        stored = self._store(self._statistics.take(BATCH, timeout=POLL_SECONDS))
        stored += store_dead_letters(subscription=self._dead)
        self._record_observed()
        if self._timers.due("relay", RELAY_SECONDS):
            stored += self._relay()
        if self._timers.due("close", CLOSE_SECONDS):
            stored += finalize_counters(now=self.clock.now())
        if self._timers.due("prune", PRUNE_SECONDS):
            prune(now=self.clock.now())
            prune_samples(now=self.clock.now())
            prune_series(now=self.clock.now())
        return stored > 0

    def teardown(self) -> None:
        """Store prefetched deliveries and close both subscriptions; the rest is redelivered."""
        try:
            # Fewer than two after a failed setup.
            if len(self._subscriptions) == 2:
                self._drain()
        except (*DATABASE_ERRORS, BrokerError) as error:
            logger.warning("prefetched messages are redelivered: %s", error)
        finally:
            self._close()

    def _drain(self) -> None:
        for deliveries in drain(self._statistics, limit=BATCH):
            self._store(deliveries)
        self._dead.cancel()
        store_dead_letters(subscription=self._dead)

    def _close(self) -> None:
        while self._subscriptions:
            self._subscriptions.pop().close()

    def _record_observed(self) -> None:
        """Record which seconds were observable, so that missing samples are not read as zero."""
        if not self.broker.connected:
            self._observed_until = 0
            return
        second = int(self.clock.time())
        if not self._observed_until or self._observed_until > second:
            self._observed_until = second
        if second > self._observed_until:
            record_observed_seconds(since=self._observed_until, until=second)
            self._observed_until = second

    def _relay(self) -> int:
        """Publish outbox messages of processes that died between their commit and their publish."""
        try:
            published = relay_outbox(self.broker)
        except BrokerError as error:
            # Not fatal: the messages stay in the outbox.
            self._relay_outage.failed(error)
            return 0
        self._relay_outage.recovered()
        return published

    def _store(self, deliveries: list[Delivery]) -> int:
        try:
            return self._store_taken(deliveries)
        except BaseException:
            # Unsettled deliveries would use up the prefetch limit.
            self._statistics.requeue(deliveries)
            raise

    def _store_taken(self, deliveries: list[Delivery]) -> int:
        accepted: list[tuple[Delivery, Report | Samples]] = []
        for delivery in deliveries:
            try:
                message = decode(delivery.body)
            except ProtocolError as malformed:
                self._dead_letter(delivery, str(malformed))
                continue
            error = _sender_error(delivery, message)
            if error:
                self._dead_letter(delivery, error)
            elif isinstance(message, RunCounters | CenterCounters | PageCounters | Samples):
                accepted.append((delivery, message))
            else:
                self._dead_letter(delivery, f"{type(message).__name__} is not a counter report")
        if accepted:
            reasons = self._write([message for _, message in accepted])
            failpoints.hit("queuestats.before_ack")
            for delivery, message in accepted:
                if id(message) in reasons:
                    self._dead_letter(delivery, reasons[id(message)])
            self._statistics.ack([d for d, message in accepted if id(message) not in reasons])
        return len(accepted)

    def _write(self, messages: list[Report | Samples]) -> dict[int, str]:
        """Store messages; return the reasons of rejected ones by their ``id()``."""
        now = self.clock.now()
        counters = [message for message in messages if not isinstance(message, Samples)]
        samples = [message for message in messages if isinstance(message, Samples)]
        rejected = [
            *store_counters(messages=counters, now=now),
            *store_samples(messages=samples, now=now),
        ]
        return {id(report.message): report.reason for report in rejected}

    def _dead_letter(self, delivery: Delivery, reason: str) -> None:
        logger.warning("message dead-lettered: queue=%s reason=%s", delivery.queue, reason)
        self._statistics.dead_letter(delivery, reason)


def _sender_error(delivery: Delivery, message: AnyMessage) -> str:
    """Return why the sender may not send this, or "": a run reports only its own counters."""
    if isinstance(message, RunCounters):
        return sender_problem(delivery, run=message.run, boot=message.boot)
    sender = sender_of(delivery)
    return f"{sender} sends {type(message).__name__}" if sender else ""
