"""From the runs' batches to the agents' queues. The hot path: no database in it."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from operator import attrgetter
from random import Random

from apps.agents.center.assignment import Groups, assign, commands, skipped
from apps.agents.center.gate import Gate
from apps.agents.center.runs import RunEntry, RunTable
from yardkit import failpoints, topology
from yardkit.broker import Broker, BrokerClosed, Delivery, Outgoing, Subscription
from yardkit.broker.gateway import flaw_of_sender
from yardkit.broker.outgoing import check_name
from yardkit.clock import Clock
from yardkit.protocol import (
    DownloadBatch,
    ProtocolError,
    RequestItem,
    decode,
)
from yardkit.tokens import verify_run_token

logger = logging.getLogger(__name__)

TAKE = 200
_host = attrgetter("host")


class Dispatcher:
    """One thread that moves requests; those to hosts that must be spared go to the gate."""

    def __init__(
        self, *, broker: Broker, runs: RunTable, gate: Gate, secret: str, clock: Clock
    ) -> None:
        self.broker = broker
        self.gate = gate
        self.runs = runs
        self.secret = secret
        self.clock = clock
        self.refused = 0
        self._random = Random()  # noqa: S311 - spreading load is no secret
        self._subscription: Subscription | None = None

    def open(self) -> None:
        """Start consuming."""
        self._subscription = self.broker.subscribe(topology.CENTER_REQUESTS.name, prefetch=TAKE)

    def take_no_more(self) -> None:
        """What has come is still dispatched."""
        if self._subscription is not None:
            self._subscription.cancel()

    def close(self) -> None:
        """Stop consuming; what is not dispatched goes back to the queue."""
        if self._subscription is not None:
            self._subscription.close()

    def step(self, timeout: float) -> int:
        """Take what waits, regroup it per agent, publish it; the number of batches taken."""
        assert self._subscription is not None  # noqa: S101 - open() comes first
        deliveries = self._subscription.take(TAKE, timeout=timeout)
        groups: Groups = {}
        words: list[Outgoing] = []
        taken: list[Delivery] = []
        for delivery in deliveries:
            batch = self._read(delivery)
            if batch is not None:
                taken.append(delivery)
                self._sort(batch, groups, words)
        if taken:
            self._publish(groups, words, taken)
        return len(deliveries)

    def _read(self, delivery: Delivery) -> DownloadBatch | None:
        """The batch, or None when it was refused to the dead letters."""
        try:
            message = decode(delivery.body)
        except ProtocolError as error:
            self._refuse(delivery, str(error))
            return None
        if not isinstance(message, DownloadBatch):
            self._refuse(delivery, f"{type(message).__name__} is no download batch")
            return None
        try:
            check_name("a queue", message.reply_to)
        except ValueError as error:
            self._refuse(delivery, f"reply_to: {error}")
            return None
        flaw = flaw_of_sender(delivery, run=message.run, reply_to=message.reply_to)
        if flaw:
            self._refuse(delivery, flaw)
            return None
        # Checking a signature costs; the same token again is the same answer.
        known = self.runs.get(message.run)
        if known is not None and known.token == message.token:
            return message
        if not verify_run_token(self.secret, message.run, message.token):
            self._refuse(delivery, f"the token is not that of run {message.run}")
            return None
        self.runs.use(message.run).token = message.token
        return message

    def _refuse(self, delivery: Delivery, reason: str) -> None:
        self.refused += 1
        logger.warning("refused a message of %s: %s", delivery.queue, reason)
        assert self._subscription is not None  # noqa: S101 - a delivery came from it
        self._subscription.dead_letter(delivery, reason)

    def _sort(self, batch: DownloadBatch, groups: Groups, words: list[Outgoing]) -> None:
        entry = self.runs.use(batch.run)
        if self.clock.time() - batch.sent_at > topology.DOWNLOAD_EXPIRES_SECONDS:
            self.runs.count(entry, received=len(batch.items), expired=len(batch.items))
            return
        items = batch.items
        if self.runs.alive(entry) and not self.gate.passes(entry, set(map(_host, items))):
            items = self._hold(entry, batch)
        gone = assign(groups, entry, batch.reply_to, items, self._random)
        lost = 0
        for reason, some in gone.items():
            lost += len(some)
            words.append(skipped(batch.run, batch.reply_to, reason, some))
        count = len(items)
        self.runs.count(entry, received=count, dispatched=count - lost, skipped=lost)

    def _hold(self, entry: RunEntry, batch: DownloadBatch) -> list[RequestItem]:
        """Hand what needs politeness to the gate; the rest is returned."""
        polite: list[RequestItem] = []
        rest: list[RequestItem] = []
        for item in batch.items:
            (rest if self.gate.passes(entry, (item.host,)) else polite).append(item)
        # Counted first: the gate may be quicker than this thread.
        self.runs.count(entry, received=len(polite), held=len(polite))
        self.gate.offer(entry, batch.reply_to, polite)
        return rest

    def _publish(self, groups: Groups, words: list[Outgoing], taken: list[Delivery]) -> None:
        outgoing = [*words, *commands(groups, self.clock.time())]
        failpoints.hit("center.before_dispatch")
        future = self.broker.publish(outgoing)
        future.add_done_callback(lambda done: self._dispatched(done, taken))

    def _dispatched(self, done: Future[None], taken: list[Delivery]) -> None:
        """Confirmed, or given up: either way the run's own time-out is the net, so ack."""
        error = done.exception()
        if error is not None:
            logger.warning("a dispatch did not arrive: %s", error)
        try:
            if self._subscription is not None:
                self._subscription.ack(taken)
        except BrokerClosed:
            return
