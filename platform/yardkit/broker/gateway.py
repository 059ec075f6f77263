"""Exchange for accounts that may use only their own queues.

RabbitMQ's default exchange reaches any queue, so an account that may publish there may publish
everywhere. A limited account publishes to the topic exchange ``GATEWAY`` instead, with its own name
at the end of each routing key, which topic permissions enforce. So consumers know the sender.
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
    """Return whether this can be the name of a limited account: ``run.<run>.<boot>``."""
    return _OWN.fullmatch(name) is not None


def belongs_to(name: str, own: str) -> bool:
    """Return whether a queue belongs to the limited account ``own``."""
    return name == own or name.startswith(f"{own}.")


def gateway_key(queue: str, own: str) -> str:
    """Return the routing key with which the limited account ``own`` reaches ``queue``."""
    return f"{queue}.{own}"


def sender_of(delivery: Delivery) -> str:
    """Return the limited account that sent this, as the broker enforces; "" for others."""
    if delivery.exchange != GATEWAY:
        return ""
    sender = _SENDER.search(delivery.key)
    # Only the platform's own accounts may use another key.
    return sender[1] if sender else ""


def sender_problem(delivery: Delivery, *, run: int, boot: str = "", reply_to: str = "") -> str:
    """Return why a limited account may not send this message (another run or queue), else "".

    Args:
        run: run that the message is about.
        boot: its execution, "" if the message names none.
        reply_to: further queue for replies, beside that of the delivery.
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
    """Bind existing queues to the gateway; repeated after each reconnect."""
    broker.declare_exchange(GATEWAY, "topic")
    for queue in queues:
        broker.bind(queue.name, GATEWAY, f"{queue.name}.#")
