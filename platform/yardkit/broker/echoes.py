"""Messages that test a queue: the subscription that takes one answers it and hands out the rest.

So an answer proves that the queue accepts messages, that its consumer calls ``take``, and that
replies arrive. Consumers never see these messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from yardkit.broker.base import Broker, Delivery, Outgoing
from yardkit.broker.replies import reply_message

_HEADER: Final = "crawlyard-echo"


def ask_for_echo(broker: Broker, queue: str, *, timeout: float) -> None:
    """Send a message through a queue and wait for the answer of whichever consumer takes it.

    Raises:
        TimeoutError: no answer in time.
        BrokerError: the queue does not exist or accepts nothing.
    """
    message = Outgoing(b"", key=queue, persistent=False, headers={_HEADER: True})
    broker.request(message, timeout)


def split_echoes(deliveries: Sequence[Delivery]) -> tuple[list[Delivery], list[Delivery]]:
    """Return the requests for an echo, and the other deliveries."""
    asked = [delivery for delivery in deliveries if _HEADER in delivery.headers]
    if not asked:
        return [], list(deliveries)
    return asked, [delivery for delivery in deliveries if _HEADER not in delivery.headers]


def echo_messages(asked: Sequence[Delivery]) -> tuple[Outgoing, ...]:
    """Return the answers."""
    answers = []
    for delivery in asked:
        # One that asks for no reply, or into another account's queue, gets none.
        with suppress(ValueError):
            answers.append(reply_message(delivery, b""))
    return tuple(answers)
