"""How many messages this process has finished, by queue, since it began."""

from __future__ import annotations

import threading
from typing import Final

# A process that makes up queues, such as one for each run, is told of by the first ones.
MOST_QUEUES: Final = 64

_lock = threading.Lock()
_settled: dict[str, int] = {}


def settled(queue: str, count: int) -> None:
    """So many of a queue were acknowledged, or given up as dead letters, just now."""
    with _lock:
        if queue in _settled or len(_settled) < MOST_QUEUES:
            _settled[queue] = _settled.get(queue, 0) + count


def counts() -> dict[str, int]:
    """By queue; they only rise."""
    with _lock:
        return dict(_settled)
