"""The way into the platform for those who may use no queue but their own.

RabbitMQ's default exchange takes a message to any queue, so whoever may publish there may publish
everywhere. A limited account publishes to the topic exchange ``GATEWAY`` instead, with its own
name at the end of each routing key. RabbitMQ lets it use no other name (topic permissions), so
that a consumer knows for certain who has sent a message.
"""

from __future__ import annotations

import re
from typing import Final

from yardkit.broker.base import Broker, Delivery, QueueSpec

GATEWAY: Final = "runs"
# One execution of a run, as ``topology.run_answers`` names its queue.
_OWN: Final = re.compile(r"run\.[0-9]{1,19}\.[0-9A-Za-z_-]{1,64}")
_SENDER: Final = re.compile(rf"\.({_OWN.pattern})\Z")


def is_own(name: str) -> bool:
    """Whether this can be the name of a limited account: ``run.<run>.<boot>``."""
    return _OWN.fullmatch(name) is not None


def belongs_to(name: str, own: str) -> bool:
    """Whether a queue is that of the limited account ``own``."""
    return name == own or name.startswith(f"{own}.")


def gateway_key(queue: str, own: str) -> str:
    """The routing key by which the limited account ``own`` reaches ``queue``."""
    return f"{queue}.{own}"


def sender_of(delivery: Delivery) -> str:
    """The limited account that sent this, for certain; "" if it came from anybody else."""
    if delivery.exchange != GATEWAY:
        return ""
    found = _SENDER.search(delivery.key)
    # Only the platform's own accounts may use another key.
    return found[1] if found else ""


def flaw_of_sender(delivery: Delivery, *, run: int, boot: str = "", reply_to: str = "") -> str:
    """What is wrong when a limited account speaks for another run, or for another's queue; else "".

    Args:
        run: in whose name the message speaks.
        boot: which execution of it, "" where the message does not say.
        reply_to: where the message wants its answers, besides what the delivery says.
    """
    sender = sender_of(delivery)
    if not sender:
        return ""
    speaks_for = f"run.{run}.{boot}"
    if not (sender == speaks_for or (not boot and sender.startswith(speaks_for))):
        return f"{sender} speaks for {speaks_for.rstrip('.')}"
    for queue in (reply_to, delivery.reply_to):
        if queue and not belongs_to(queue, sender):
            return f"{sender} wants answers in {queue[:100]!r}"
    return ""


def open_gateway(broker: Broker, *queues: QueueSpec) -> None:
    """Let limited accounts reach these queues, which exist. Repeated after each reconnect."""
    broker.declare_exchange(GATEWAY, "topic")
    for queue in queues:
        broker.bind(queue.name, GATEWAY, f"{queue.name}.#")
