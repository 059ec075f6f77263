"""Headers of dead letters."""

from __future__ import annotations

from collections.abc import Mapping

from yardkit.broker.base import HEADER_DIED_AT, HEADER_QUEUE, HEADER_REASON

Headers = Mapping[str, str | int | float | bool]

EXPIRED = "expired"


def dead_headers(headers: Headers, *, reason: str, queue: str, died_at: float) -> Headers:
    """Return the message's headers with the three of a dead letter; ``died_at`` is Unix time."""
    return {**headers, HEADER_REASON: reason, HEADER_QUEUE: queue, HEADER_DIED_AT: died_at}
