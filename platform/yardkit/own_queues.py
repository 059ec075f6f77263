"""Names of the platform's own queues, which rules and sources may not use."""

from __future__ import annotations

from yardkit import topology
from yardkit.broker.base import DEAD_QUEUE

_OWN = frozenset(
    {spec.name for spec in topology.SHARED} | {DEAD_QUEUE, topology.TASKS, topology.BUILDS}
)
# Prefixes of queues of one agent, center, run, host, process or biz.
_PREFIXES = (
    *("agent.", "amq.", "celery", "center.", "run.", "runner.", "web.", "requests.", "seeds."),
)


def is_own(queue: str) -> bool:
    """Return whether the name is one of the platform's queues."""
    return queue in _OWN or queue.startswith(_PREFIXES)
