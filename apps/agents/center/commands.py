"""Outgoing messages of the center, and the settling of the messages that caused them."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from typing import Final

from yardkit import topology
from yardkit.broker import BrokerClosed, BrokerUnavailable, Delivery, Outgoing, Subscription
from yardkit.protocol import Allocated, AnyMessage, encode

logger = logging.getLogger(__name__)

# An agent that is away for longer registers again and gets the command again.
COMMAND_TTL_SECONDS: Final = 3600.0


class InvalidControlMessage(Exception):
    """An unusable message; the text goes to the dead letters with it."""


def to_agent(agent: str, message: AnyMessage) -> Outgoing:
    """Return a command for an agent's queue."""
    key = topology.agent_commands(agent).name
    return Outgoing(body=encode(message), key=key, ttl_seconds=COMMAND_TTL_SECONDS)


def to_run(reply_to: str, answer: Allocated) -> Outgoing:
    """Return the answer to a run that asked for agents."""
    return Outgoing(
        body=encode(answer), key=reply_to, ttl_seconds=topology.ALLOCATE_EXPIRES_SECONDS
    )


def settle(subscription: Subscription, delivery: Delivery, done: Future[None]) -> None:
    """Acknowledge a message once its effects are confirmed; else requeue it."""
    error = done.exception()
    if error is not None:
        logger.warning("effects of a message of %s were not published: %s", delivery.queue, error)
    try:
        if isinstance(error, BrokerUnavailable):
            subscription.requeue([delivery])
        else:
            # Also if a queue is gone: a retry would not bring it back.
            subscription.ack([delivery])
    except BrokerClosed:
        return


def log_failure(done: Future[None]) -> None:
    """Log a failed publish whose loss is harmless."""
    if (error := done.exception()) is not None:
        logger.warning("command was not confirmed: %s", error)
