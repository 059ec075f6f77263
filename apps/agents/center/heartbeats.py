"""Reads the agents' heartbeats without a database, whose outage must not make them look silent."""

from __future__ import annotations

import logging

from apps.agents.center.liveness import Liveness
from yardkit.broker import Delivery, Subscription
from yardkit.names import AGENT_ID
from yardkit.protocol import Heartbeat, ProtocolError, decode

logger = logging.getLogger(__name__)

TAKE = 2000


class HeartbeatListener:
    """Updates ``Liveness`` from one subscription."""

    def __init__(self, subscription: Subscription, liveness: Liveness) -> None:
        self._subscription = subscription
        self._liveness = liveness

    def step(self, timeout: float) -> int:
        """Take what waits; return the number of messages."""
        deliveries = self._subscription.take(TAKE, timeout=timeout)
        done: list[Delivery] = []
        for delivery in deliveries:
            problem = self._read(delivery)
            if problem:
                logger.warning("refused a message of %s: %s", delivery.queue, problem)
                self._subscription.dead_letter(delivery, problem)
            else:
                done.append(delivery)
        self._subscription.ack(done)
        return len(deliveries)

    def _read(self, delivery: Delivery) -> str:
        """Note one heartbeat; return the error of an invalid one."""
        try:
            message = decode(delivery.body)
        except ProtocolError as error:
            return str(error)
        if not isinstance(message, Heartbeat):
            return f"{type(message).__name__} is no heartbeat"
        if not AGENT_ID.fullmatch(message.agent):
            return f"{message.agent[:80]!r} is no id of an agent"
        self._liveness.heartbeat(message)
        return ""
