"""Moves requests from the batches of runs to the queues of agents. Hot path without a database."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from operator import attrgetter
from random import Random

from apps.agents.center.assignment import Groups, assign, commands, skipped
from apps.agents.center.gate import PolitenessGate
from apps.agents.center.runs import RunTable
from yardkit import failpoints, topology
from yardkit.broker import Broker, BrokerClosed, BrokerError, Delivery, Outgoing, Subscription
from yardkit.broker.gateway import sender_problem
from yardkit.broker.outgoing import check_name
from yardkit.clock import Clock
from yardkit.errors import first_line
from yardkit.guard import settle
from yardkit.protocol import AnyMessage, DownloadBatch, ProtocolError, RequestItem, decode
from yardkit.tokens import verify_run_token

logger = logging.getLogger(__name__)

TAKE = 200
_host = attrgetter("host")
# Side effects of a batch of messages, run once all of it has been processed.
Effects = list[Callable[[], object]]


class BatchDispatcher:
    """Dispatches batches in one thread; requests to limited hosts go to the gate."""

    def __init__(
        self, *, broker: Broker, runs: RunTable, gate: PolitenessGate, secret: str, clock: Clock
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
        """Stop consuming; received batches are still dispatched."""
        if self._subscription is not None:
            self._subscription.cancel()

    def close(self) -> None:
        """Close; batches that are not dispatched return to the queue."""
        if self._subscription is not None:
            self._subscription.close()

    def step(self, timeout: float) -> int:
        """Take what waits, regroup it per agent, publish it; return the number of batches taken."""
        assert self._subscription is not None  # noqa: S101 - open() comes first
        deliveries = self._subscription.take(TAKE, timeout=timeout)
        settle(deliveries, self._dispatch, self._reject, passing=(BrokerError,))
        return len(deliveries)

    def _dispatch(self, deliveries: Sequence[Delivery]) -> None:
        """Dispatch some batches. Repeatable while it raises: the effects come last."""
        groups: Groups = {}
        notices: list[Outgoing] = []
        effects: Effects = []
        taken: list[Delivery] = []
        for delivery in deliveries:
            batch = self._read(delivery, effects)
            if batch is not None:
                taken.append(delivery)
                self._sort(batch, groups, notices, effects)
        outgoing = [*notices, *commands(groups, self.clock.time())]
        failpoints.hit("center.before_dispatch")
        for effect in effects:
            effect()
        if taken:
            future = self.broker.publish(outgoing)
            future.add_done_callback(lambda done: self._dispatched(done, taken))

    def _reject(self, delivery: Delivery, error: Exception) -> None:
        self._refuse(delivery, f"{type(error).__name__}: {first_line(error)}")

    def _read(self, delivery: Delivery, effects: Effects) -> DownloadBatch | None:
        """Return the batch, or None when it is refused to the dead letters."""
        try:
            message = decode(delivery.body)
        except ProtocolError as error:
            flaw = str(error)
        else:
            flaw = self._flaw(delivery, message)
            if not flaw and isinstance(message, DownloadBatch):
                return message
        effects.append(partial(self._refuse, delivery, flaw))
        return None

    def _flaw(self, delivery: Delivery, message: AnyMessage) -> str:
        """Return why a message cannot be dispatched; "" when it can."""
        if not isinstance(message, DownloadBatch):
            return f"{type(message).__name__} is no download batch"
        try:
            check_name("a queue", message.reply_to)
        except ValueError as error:
            return f"reply_to: {error}"
        flaw = sender_problem(delivery, run=message.run, reply_to=message.reply_to)
        if flaw:
            return flaw
        # Checking a signature is slow; a token that was valid before is valid.
        known = self.runs.get(message.run)
        if known is None or known.token != message.token:
            if not verify_run_token(self.secret, message.run, message.token):
                return f"the token is not that of run {message.run}"
            self.runs.use(message.run).token = message.token
        return ""

    def _refuse(self, delivery: Delivery, reason: str) -> None:
        self.refused += 1
        logger.warning("refused a message of %s: %s", delivery.queue, reason)
        assert self._subscription is not None  # noqa: S101 - a delivery came from it
        self._subscription.dead_letter(delivery, reason)

    def _sort(
        self, batch: DownloadBatch, groups: Groups, notices: list[Outgoing], effects: Effects
    ) -> None:
        entry = self.runs.use(batch.run)
        count = partial(self.runs.count, entry)
        items = batch.items
        if self.clock.time() - batch.sent_at > topology.DOWNLOAD_EXPIRES_SECONDS:
            effects.append(partial(count, received=len(items), expired=len(items)))
            return
        if self.runs.alive(entry) and not self.gate.passes(entry, set(map(_host, items))):
            polite: list[RequestItem] = []
            rest: list[RequestItem] = []
            for item in items:
                (rest if self.gate.passes(entry, (item.host,)) else polite).append(item)
            # Counted first: the gate may be quicker than this thread.
            effects.append(partial(count, received=len(polite), held=len(polite)))
            effects.append(partial(self.gate.offer, entry, batch.reply_to, polite))
            items = rest
        unassigned = assign(groups, entry, batch.reply_to, items, self._random)
        lost = 0
        for reason, some in unassigned.items():
            lost += len(some)
            notices.append(skipped(batch.run, batch.reply_to, reason, some))
        number = len(items)
        effects.append(partial(count, received=number, dispatched=number - lost, skipped=lost))

    def _dispatched(self, done: Future[None], taken: list[Delivery]) -> None:
        """Acknowledge, also after a failed publish: the run's timeout repeats it."""
        error = done.exception()
        if error is not None:
            logger.warning("dispatch was not confirmed: %s", error)
        try:
            if self._subscription is not None:
                self._subscription.ack(taken)
        except BrokerClosed:
            return
