"""Queues that the platform itself talks through: nobody else may be sent to one, or read one."""

from __future__ import annotations

from yardkit import topology
from yardkit.broker.base import DEAD_QUEUE

_OWN = frozenset(
    {spec.name for spec in topology.SHARED} | {DEAD_QUEUE, topology.TASKS, topology.BUILDS}
)
# Those of one agent, center, run, host, process or biz are made of its name.
_PREFIXES = (
    *("agent.", "amq.", "celery", "center.", "run.", "runner.", "web.", "requests.", "seeds."),
)


def is_own(queue: str) -> bool:
    """Whether it is one of them by its name."""
    return queue in _OWN or queue.startswith(_PREFIXES)
