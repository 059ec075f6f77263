"""Orderly end of a consumer."""

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
    """Cancel the subscription and yield messages that have arrived, in batches, for ``seconds``.

    A caller that acknowledges everything before closing causes no redelivery. Raises
    ``BrokerClosed``.
    """
    until = time.monotonic() + seconds
    subscription.cancel()
    while time.monotonic() < until and (deliveries := subscription.take(limit)):
        yield deliveries
