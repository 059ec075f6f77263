"""Number of messages finished by this process, by queue."""

from __future__ import annotations

import threading
from typing import Final

# A process with many queues, such as one for each run, reports the first ones.
MOST_QUEUES: Final = 64

_lock = threading.Lock()
_settled: dict[str, int] = {}


def settled(queue: str, count: int) -> None:
    """Count messages of a queue that were acknowledged or dead-lettered."""
    with _lock:
        if queue in _settled or len(_settled) < MOST_QUEUES:
            _settled[queue] = _settled.get(queue, 0) + count


def counts() -> dict[str, int]:
    """Return the totals by queue, which only rise."""
    with _lock:
        return dict(_settled)
