"""How much waits in which queue: each app registers what it knows, one place reads all."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

logger = logging.getLogger(__name__)


class Way(StrEnum):
    """Who puts in and who takes out."""

    # Processes of this platform do both.
    INSIDE = "inside"
    # Others put in, a router takes out.
    IN = "in"
    # We put in, others take out.
    OUT = "out"


@dataclass(frozen=True, slots=True)
class QueueReading:
    """A queue as it stands.

    Args:
        name: Tells it from the others of its project, or of the platform (``project`` None).
        engine: rabbitmq, sqlite, redis, kafka, files, … .
        address: What its engine calls it, where that is another word.
        waiting: Messages that nobody has taken; of a Kafka group: those it has not read. None:
            nobody can say.
        taken: Handed out and not done; None where the engine does not tell.
        readers: How many read it; None where the engine does not tell.
        oldest_seconds: For how long the oldest one has waited; None: unknown.
        in_total: How many were ever put in, as far as is counted; None: nobody counts. Only the
            difference to an earlier reading with the same ``epoch`` says anything.
        out_total: How many were ever taken out for good, likewise.
        epoch: Counting began anew where it differs.
        problem: Why it cannot be used, or read; "" when all is well.
    """

    name: str
    engine: str
    project: int | None = None
    address: str = ""
    way: Way = Way.INSIDE
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
    """Where queues are read. Thread-safe."""

    def __init__(self) -> None:
        self._reads: dict[str, Read] = {}
        self._failing: set[str] = set()
        self._lock = threading.Lock()

    def register(self, name: str, read: Read) -> None:
        """From now on ``read`` is asked, too; a second one of the name replaces the first."""
        with self._lock:
            self._reads[name] = read

    def snapshot(self) -> list[QueueReading]:
        """Every queue now. What cannot be read is left out, which is logged once."""
        with self._lock:
            reads = list(self._reads.items())
        found: list[QueueReading] = []
        for name, read in reads:
            try:
                found += read()
            except Exception:  # one that cannot be read must not hide the others
                if name not in self._failing:
                    logger.exception("cannot read the queues of %s", name)
                self._failing.add(name)
            else:
                self._failing.discard(name)
        return found


_registry = QueueRegistry()
register = _registry.register
snapshot = _registry.snapshot
