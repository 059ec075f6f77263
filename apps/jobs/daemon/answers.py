"""Consumer of the answers of runs to commands."""

from __future__ import annotations

import logging

from apps.jobs.daemon.context import RunnerContext
from apps.jobs.services import acknowledge
from yardkit import failpoints, topology
from yardkit.broker import Broker, Delivery, Subscription
from yardkit.broker.gateway import sender_problem
from yardkit.protocol import LifecycleAnswer, ProtocolError, decode

logger = logging.getLogger(__name__)

MOST_AT_ONCE = 100


class AnswerListener:
    """Consumer of the queue of answers, which all runners share.

    Acknowledges an answer after the transaction that records it is committed.
    """

    def __init__(self, context: RunnerContext) -> None:
        self._context = context
        self._answers: Subscription | None = None

    def open(self, broker: Broker) -> None:
        """Subscribe to the queue of answers."""
        self._answers = broker.subscribe(topology.LIFECYCLE_ANSWERS.name, prefetch=MOST_AT_ONCE)

    def close(self) -> None:
        """Unsubscribe; unacknowledged answers are redelivered to another runner."""
        if self._answers is not None:
            self._answers.close()
            self._answers = None

    def step(self) -> None:
        """Process the answers that have arrived."""
        answers = self._answers
        if answers is None:
            return
        deliveries = answers.take(MOST_AT_ONCE)
        for number, delivery in enumerate(deliveries):
            try:
                self._take(answers, delivery)
            except BaseException:
                # Requeue the rest: unacknowledged answers would count against the prefetch limit.
                answers.requeue(deliveries[number:])
                raise

    def _take(self, answers: Subscription, delivery: Delivery) -> None:
        try:
            message = decode(delivery.body)
        except ProtocolError as error:
            answers.dead_letter(delivery, str(error))
            return
        if not isinstance(message, LifecycleAnswer):
            answers.dead_letter(delivery, f"{type(message).__name__} is no answer of a run")
            return
        flaw = sender_problem(delivery, run=message.run, boot=message.boot)
        if flaw:
            answers.dead_letter(delivery, flaw)
            return
        acknowledge(message=message, now=self._context.now())
        failpoints.hit("jobs.acknowledged")
        answers.ack([delivery])
