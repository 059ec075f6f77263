"""Registry of queue depths: apps register readers, one place reads all."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

logger = logging.getLogger(__name__)


class QueueDirection(StrEnum):
    """Direction of a queue: who produces and who consumes."""

    # This platform produces and consumes.
    INSIDE = "inside"
    # Others produce, a router consumes.
    IN = "in"
    # This platform produces, others consume.
    OUT = "out"


@dataclass(frozen=True, slots=True)
class QueueReading:
    """Current state of a queue.

    Args:
        name: unique in its project, or on the platform (``project`` None).
        engine: rabbitmq, sqlite, redis, kafka, files, … .
        address: name in the engine, if different.
        waiting: messages not taken; of a Kafka group: its lag. None: unknown.
        taken: delivered and not done; None: unknown.
        readers: number of consumers; None: unknown.
        oldest_seconds: age of the oldest message; None: unknown.
        in_total: messages ever added; None: not counted. Only differences within one ``epoch``
            are meaningful.
        out_total: messages ever finished, likewise.
        epoch: changes when counting restarts.
        problem: why it cannot be used or read; "": OK.
    """

    name: str
    engine: str
    project: int | None = None
    address: str = ""
    way: QueueDirection = QueueDirection.INSIDE
    waiting: int | None = None
    taken: int | None = None
    readers: int | None = None
    oldest_seconds: float | None = None
    in_total: int | None = None
    out_total: int | None = None
    epoch: str = ""
    problem: str = ""


Read = Callable[[], Iterable[QueueReading]]


class QueueRegistry:
    """Registered readers. Thread-safe."""

    def __init__(self) -> None:
        self._reads: dict[str, Read] = {}
        self._failing: set[str] = set()
        self._lock = threading.Lock()

    def register(self, name: str, read: Read) -> None:
        """Register ``read``; a second one of the name replaces the first."""
        with self._lock:
            self._reads[name] = read

    def snapshot(self) -> list[QueueReading]:
        """Read every queue. Failing readers are skipped and logged once."""
        with self._lock:
            reads = list(self._reads.items())
        readings: list[QueueReading] = []
        for name, read in reads:
            try:
                readings += read()
            except Exception:  # a failing reader must not hide the others
                if name not in self._failing:
                    logger.exception("cannot read the queues of %s", name)
                self._failing.add(name)
            else:
                self._failing.discard(name)
        return readings


_registry = QueueRegistry()
register = _registry.register
snapshot = _registry.snapshot
