"""The end of a consumer that leaves nothing half done."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from yardkit.broker.base import Delivery, Subscription

# Together with what follows it a stop must be over within 5 s.
DRAIN_SECONDS: Final = 2.0


def drain(
    subscription: Subscription, *, limit: int = 100, seconds: float = DRAIN_SECONDS
) -> Iterator[list[Delivery]]:
    """Ask for no more and yield what has come, at most ``limit`` at once, for up to ``seconds``.

    Whoever settles all of it before it closes the subscription leaves nothing to be delivered
    again. Raises ``BrokerClosed``.
    """
    until = time.monotonic() + seconds
    subscription.cancel()
    while time.monotonic() < until and (deliveries := subscription.take(limit)):
        yield deliveries
