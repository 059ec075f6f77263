"""run_statistics: counters into the database, dead letters onto their page, housekeeping."""

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
from apps.runtime.services import (
    prune,
    relay_outbox,
    store_dead_letters,
    subscribe_dead_letters,
)
from yardkit import failpoints, topology
from yardkit.broker import Broker, BrokerError, Delivery, Subscription, drain
from yardkit.broker.gateway import flaw_of_sender, sender_of
from yardkit.clock import Clock
from yardkit.outage import Outage
from yardkit.protocol import (
    AnyMessage,
    CenterCounters,
    ProtocolError,
    RunCounters,
    Samples,
    decode,
)
from yardkit.shared_queues import declare_shared
from yardkit.timers import Timers

logger = logging.getLogger(__name__)

POLL_SECONDS: Final = 0.2
# With more runs than this many reports a second waiting, several of each run come in one batch:
# only the newest is written, so whoever is behind catches up.
BATCH: Final = 2_000
RELAY_SECONDS: Final = 1.0
CLOSE_SECONDS: Final = 5.0
PRUNE_SECONDS: Final = 600.0


class StatisticsDaemon:
    """One round: take a batch, commit it, then acknowledge it."""

    def __init__(self, *, broker: Broker, clock: Clock) -> None:
        self.broker = broker
        self.clock = clock
        self._timers = Timers(lambda: self.clock.monotonic())
        self._subscriptions: list[Subscription] = []
        self._relay_outage = Outage(logger, "outbox relay")
        # Up to this second it is noted that somebody listened; 0 while nobody does.
        self._listened = 0

    def setup(self) -> None:
        """Subscribe to the statistics and to the dead letters."""
        # It is tried again: a subscription left behind would keep its deliveries for ever.
        self._close()
        declare_shared(self.broker)
        self._statistics = self.broker.subscribe(topology.STATISTICS.name, prefetch=2 * BATCH)
        self._subscriptions.append(self._statistics)
        self._dead = subscribe_dead_letters(self.broker)
        self._subscriptions.append(self._dead)

    def step(self) -> bool:
        """True when anything was stored."""
        stored = self._store(self._statistics.take(BATCH, timeout=POLL_SECONDS))
        stored += store_dead_letters(subscription=self._dead)
        self._listen()
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
        """Store what has come, and let go of both queues; what is not acknowledged goes back."""
        try:
            # Both, or the setup has failed.
            if len(self._subscriptions) == 2:
                self._drain()
        except (*DATABASE_ERRORS, BrokerError) as error:
            logger.warning("what has come goes back to its queue: %s", error)
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

    def _listen(self) -> None:
        """Note the seconds in which a report could arrive: without them nothing is no zero."""
        if not self.broker.connected:
            self._listened = 0
            return
        second = int(self.clock.time())
        if not self._listened or self._listened > second:
            self._listened = second
        if second > self._listened:
            record_observed_seconds(since=self._listened, until=second)
            self._listened = second

    def _relay(self) -> int:
        """The net under every process that died between its commit and its publish."""
        try:
            published = relay_outbox(self.broker)
        except BrokerError as error:
            # No reason to stop: everything stays in the outbox.
            self._relay_outage.failed(error)
            return 0
        self._relay_outage.recovered()
        return published

    def _store(self, deliveries: list[Delivery]) -> int:
        try:
            return self._store_taken(deliveries)
        except BaseException:
            # Taken and not settled, they would count against the prefetch for ever.
            self._statistics.requeue(deliveries)
            raise

    def _store_taken(self, deliveries: list[Delivery]) -> int:
        accepted: list[tuple[Delivery, Report | Samples]] = []
        for delivery in deliveries:
            try:
                message = decode(delivery.body)
            except ProtocolError as error:
                self._refuse(delivery, str(error))
                continue
            flaw = _flaw(delivery, message)
            if flaw:
                self._refuse(delivery, flaw)
            elif isinstance(message, RunCounters | CenterCounters | Samples):
                accepted.append((delivery, message))
            else:
                self._refuse(delivery, f"{type(message).__name__} counts nothing")
        if accepted:
            reasons = self._write([message for _, message in accepted])
            failpoints.hit("queuestats.before_ack")
            for delivery, message in accepted:
                if id(message) in reasons:
                    self._refuse(delivery, reasons[id(message)])
            self._statistics.ack([d for d, message in accepted if id(message) not in reasons])
        return len(accepted)

    def _write(self, messages: list[Report | Samples]) -> dict[int, str]:
        """Store them; by the ``id`` of those that cannot be, why."""
        now = self.clock.now()
        counters = [message for message in messages if not isinstance(message, Samples)]
        samples = [message for message in messages if isinstance(message, Samples)]
        refused = store_counters(messages=counters, now=now) if counters else []
        if samples:
            refused += store_samples(messages=samples, now=now)
        return {id(one.message): one.reason for one in refused}

    def _refuse(self, delivery: Delivery, reason: str) -> None:
        logger.warning("refused a message of %s: %s", delivery.queue, reason)
        self._statistics.dead_letter(delivery, reason)


def _flaw(delivery: Delivery, message: AnyMessage) -> str:
    """A run counts for itself alone."""
    if isinstance(message, RunCounters):
        return flaw_of_sender(delivery, run=message.run, boot=message.boot)
    sender = sender_of(delivery)
    return f"{sender} sends {type(message).__name__}" if sender else ""
