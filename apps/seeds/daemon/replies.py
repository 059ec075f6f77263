"""Sends answers, and acknowledges a call only after its answer is sent."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from functools import partial

from apps.seeds.daemon.refusals import refusal
from apps.seeds.engine.errors import SeedError
from yardkit import failpoints
from yardkit.broker import Broker, Delivery, Outgoing, Subscription
from yardkit.broker.replies import reply_message
from yardkit.protocol import AnyMessage, SeedsRefused, encode

logger = logging.getLogger(__name__)


class CallReplies:
    """Sender of answers. Thread-safe. ``subscription``: source of the calls; None after it is lost,
    when unacknowledged calls are redelivered.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.subscription: Subscription | None = None
        self._sending: set[Future[None]] = set()

    def reply(
        self,
        answers: Sequence[tuple[Delivery, AnyMessage]],
        more: Sequence[Outgoing] = (),
        *,
        settled: Sequence[Delivery] = (),
    ) -> None:
        """Send answers and acknowledge their calls; those in ``settled`` were answered
        elsewhere.
        """
        deliveries = [*(delivery for delivery, _ in answers), *settled]
        messages = [reply_message(delivery, encode(answer)) for delivery, answer in answers]
        messages += more
        if not messages:
            self.acknowledge(deliveries)
            return
        sent = self._broker.publish(messages)
        self._sending.add(sent)
        sent.add_done_callback(partial(self._sent, deliveries))

    def refuse(self, delivery: Delivery, error: SeedError) -> None:
        """Send an error as the answer."""
        self.reply([(delivery, refusal(error))])

    def dead_letter(self, delivery: Delivery, reason: str, *, code: str = "bad_call") -> None:
        """Dead-letter a call that no service can answer, and inform the caller."""
        if delivery.reply_to:
            answer = SeedsRefused(code=code, text=reason.encode("utf-8", "replace").decode())
            self._broker.publish([reply_message(delivery, encode(answer))])
        self.set_aside(delivery, reason)

    def set_aside(self, delivery: Delivery, reason: str) -> None:
        """Dead-letter a call without informing its caller."""
        logger.warning("refused a message of %s: %s", delivery.queue, reason)
        if self.subscription is not None:
            self.subscription.dead_letter(delivery, reason)

    def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledge calls."""
        if self.subscription is not None:
            self.subscription.ack(deliveries)

    def flush(self, seconds: float) -> None:
        """Wait until the broker has confirmed the answers."""
        wait_for(list(self._sending), timeout=seconds)

    def _sent(self, deliveries: Sequence[Delivery], sent: Future[None]) -> None:
        if sent.exception() is None:
            failpoints.hit("seeds.daemon.replied")
            self.acknowledge(deliveries)
            failpoints.hit("seeds.daemon.acknowledged")
        # The connection is lost: the calls are redelivered.
        self._sending.discard(sent)
