"""run_dataset_writer: moves items from the queue into the object store, and looks after them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from django.db import connection

from apps.datasets.services import compaction, retention
from apps.datasets.services import delivery as delivery_service
from apps.datasets.services.datasets import KINDS_OF_RUNS
from apps.datasets.services.files import store_chunk
from apps.datasets.services.ingestion import store_items
from apps.datasets.services.leases import ENDING, release_dead
from apps.datasets.states import Kind
from apps.runtime.errors import DATABASE_ERRORS
from yardkit import failpoints, topology
from yardkit.broker import Broker, BrokerError, Delivery, Subscription, drain
from yardkit.broker.gateway import sender_of, sender_problem
from yardkit.clock import Clock
from yardkit.errors import first_line
from yardkit.guard import keep_running, settle
from yardkit.objects import ObjectStoreUnavailable
from yardkit.outage import Outage
from yardkit.protocol import FileChunk, ItemBatch, ProtocolError, decode
from yardkit.shared_queues import declare_shared
from yardkit.timers import Timers

logger = logging.getLogger(__name__)

POLL_SECONDS: Final = 0.2
# Messages per transaction, each with about 1 MiB of JSON at most.
BATCH: Final = 32
# Work beside the queue, each in a thread of its own; a function does one piece of it and returns
# whether there was any.
LOOPS: Final[Mapping[str, Callable[..., bool]]] = {
    "maintenance of datasets": compaction.step,
    "retention of datasets": retention.step,
    # Two: a target that does not answer takes a thread for half a minute.
    "deliveries of datasets": delivery_service.step,
    "other deliveries of datasets": delivery_service.step,
}
# Pause of such a thread when it has found nothing to do.
IDLE_SECONDS: Final = 2.0
# The process ends within 5 s; what the threads leave open is completed at the next start.
JOIN_SECONDS: Final = 2.0
FIRST_PAUSE_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 10.0
# These errors return the batch to its queue; any other error rejects the message that causes it.
_OUTAGES: Final = (ObjectStoreUnavailable, BrokerError, *DATABASE_ERRORS)

ItemMessage = ItemBatch | FileChunk


class DatasetWriter:
    """Writer of items. Each step takes messages, stores them, then acknowledges them.

    While the object store is unavailable nothing is taken: items wait in the queue, and runs are
    slowed down by it. ``LOOPS`` run in threads.

    Args:
        once: raise ``ObjectStoreUnavailable`` instead of waiting, and do without threads.
    """

    def __init__(self, *, broker: Broker, clock: Clock, once: bool = False) -> None:
        self.broker = broker
        self.clock = clock
        self._once = once
        self._subscription: Subscription | None = None
        self._timers = Timers(lambda: self.clock.monotonic())
        self._outage = Outage(
            logger, "object store", first=FIRST_PAUSE_SECONDS, longest=LONGEST_PAUSE_SECONDS
        )
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def setup(self) -> None:
        """Subscribe to the queue and start the threads."""
        # ``setup`` may run again: a subscription left open would keep its deliveries.
        self._let_go()
        ENDING.clear()
        declare_shared(self.broker)
        self._subscribe()
        if not self._threads and not self._once:
            release_dead(now=self.clock.now())
            self._threads = [
                threading.Thread(
                    target=keep_running,
                    args=(name, partial(self._loop, name, step), self._stop),
                    name=name,
                    daemon=True,
                )
                for name, step in LOOPS.items()
            ]
            for thread in self._threads:
                thread.start()

    def step(self) -> bool:
        """Store messages; return True after any work, or while the store is unavailable."""
        if self._outage.lasting and self._timers.left("retry"):
            time.sleep(POLL_SECONDS)
            return True
        try:
            stored = self._work()
        except ObjectStoreUnavailable as error:
            if self._once:
                raise
            self._timers.postpone("retry", self._outage.failed(error))
            # Give the messages back: another writer may reach the store.
            self._let_go()
            return True
        self._outage.recovered()
        if self._once and not stored:
            return any(step(now=self.clock.now()) for step in LOOPS.values())
        return stored > 0

    def teardown(self) -> None:
        """Store what was received; unacknowledged messages return to the queue."""
        self._stop.set()
        ENDING.set()
        subscription = self._subscription
        try:
            if subscription is not None and not self._outage.lasting:
                for deliveries in drain(subscription, limit=BATCH):
                    self._store(subscription, deliveries)
        except (ObjectStoreUnavailable, BrokerError) as error:
            logger.warning("what has come goes back to its queue: %s", error)
        finally:
            self._let_go()
        deadline = time.monotonic() + JOIN_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def detail(self) -> Mapping[str, Any]:
        """Return the state of the object store, for the process table."""
        return {"away": {"object store": self._outage.error} if self._outage.lasting else {}}

    # --- beside the queue -----------------------------------------------------------------------

    def _loop(self, name: str, step: Callable[..., bool]) -> None:
        outage = Outage(logger, name)
        try:
            while not self._stop.is_set():
                try:
                    worked = step(now=self.clock.now())
                except _OUTAGES as error:
                    connection.close()
                    self._stop.wait(outage.failed(error))
                    continue
                outage.recovered()
                if not worked:
                    self._stop.wait(IDLE_SECONDS)
        finally:
            connection.close()

    # --- items ----------------------------------------------------------------------------------

    def _subscribe(self) -> Subscription:
        if self._subscription is None:
            self._subscription = self.broker.subscribe(topology.ITEMS.name, prefetch=2 * BATCH)
        return self._subscription

    def _let_go(self) -> None:
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None

    def _work(self) -> int:
        subscription = self._subscribe()
        # After an outage one message is a probe.
        most = 1 if self._outage.lasting else BATCH
        return self._store(subscription, subscription.take(most, timeout=POLL_SECONDS))

    def _store(self, subscription: Subscription, deliveries: list[Delivery]) -> int:
        """Store and settle messages; return the number of readable ones."""
        settled: set[int] = set()

        def work(part: Sequence[tuple[Delivery, ItemMessage]]) -> None:
            self._store_part(subscription, part)
            settled.update(id(delivery) for delivery, _message in part)

        def reject(delivery: Delivery, reason: str) -> None:
            logger.warning("refused a message of %s: %s", delivery.queue, reason)
            subscription.dead_letter(delivery, reason)
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
            # Deliveries neither acknowledged nor requeued would count against the prefetch limit.
            subscription.requeue(
                [unsettled for unsettled in deliveries if id(unsettled) not in settled]
            )
            raise
        return len(accepted)

    def _store_part(
        self, subscription: Subscription, part: Sequence[tuple[Delivery, ItemMessage]]
    ) -> None:
        now = self.clock.now()
        batches = [message for _delivery, message in part if isinstance(message, ItemBatch)]
        reasons = {
            id(refused.message): refused.reason
            for refused in store_items(messages=batches, now=now)
        }
        for _delivery, message in part:
            if isinstance(message, FileChunk) and (reason := store_chunk(chunk=message, now=now)):
                reasons[id(message)] = reason
        failpoints.hit("datasets.before_ack")
        for delivery, message in part:
            if id(message) in reasons:
                logger.warning("refused items: %s", reasons[id(message)])
                subscription.dead_letter(delivery, reasons[id(message)])
        subscription.ack([delivery for delivery, message in part if id(message) not in reasons])


def _readable(
    deliveries: Sequence[Delivery], reject: Callable[[Delivery, str], None]
) -> list[tuple[Delivery, ItemMessage]]:
    """Return the valid messages, and reject the others."""
    found: list[tuple[Delivery, ItemMessage]] = []
    for delivery in deliveries:
        try:
            message = decode(delivery.body)
        except ProtocolError as error:
            reject(delivery, str(error))
            continue
        if not isinstance(message, ItemBatch | FileChunk):
            reject(delivery, f"{type(message).__name__} has no items")
            continue
        problem = _sender_problem(delivery, message)
        if problem:
            reject(delivery, problem)
        else:
            found.append((delivery, message))
    return found


def _sender_problem(delivery: Delivery, message: ItemMessage) -> str:
    """Return why the sender may not send this, or "": a run sends only what is its own.

    Pages are sent by agents, never by the run.
    """
    kind, _, number = message.producer.partition(":")
    if (
        KINDS_OF_RUNS.get(kind, Kind.PAGES) is not Kind.PAGES
        and number.isascii()
        and number.isdigit()
    ):
        return sender_problem(delivery, run=int(number), boot=message.boot)
    sender = sender_of(delivery)
    return f"{sender} sends items of {message.producer[:100]}" if sender else ""
