"""The center's messages on their way out, and what becomes of the message that caused them."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from typing import Final

from yardkit import topology
from yardkit.broker import BrokerClosed, BrokerUnavailable, Delivery, Outgoing, Subscription
from yardkit.protocol import Allocated, AnyMessage, encode

logger = logging.getLogger(__name__)

# An agent that is away for longer has registered anew when it comes back, and is told again.
COMMAND_TTL_SECONDS: Final = 3600.0


def to_agent(agent: str, message: AnyMessage) -> Outgoing:
    """A command for an agent's own queue."""
    key = topology.agent_commands(agent).name
    return Outgoing(body=encode(message), key=key, ttl_seconds=COMMAND_TTL_SECONDS)


def to_run(reply_to: str, answer: Allocated) -> Outgoing:
    """The answer to a run that asked for agents."""
    return Outgoing(
        body=encode(answer), key=reply_to, ttl_seconds=topology.ALLOCATE_EXPIRES_SECONDS
    )


def settle(subscription: Subscription, delivery: Delivery, done: Future[None]) -> None:
    """Acknowledge a message once what follows from it is confirmed; else let it come again."""
    error = done.exception()
    if error is not None:
        logger.warning("what follows from a message of %s: %s", delivery.queue, error)
    try:
        if isinstance(error, BrokerUnavailable):
            subscription.requeue([delivery])
        else:
            # Also where a queue is gone: trying again would not bring it back.
            subscription.ack([delivery])
    except BrokerClosed:
        return


def log_failure(done: Future[None]) -> None:
    """For messages whose loss costs nothing but a word in the log."""
    if (error := done.exception()) is not None:
        logger.warning("a command did not arrive: %s", error)
