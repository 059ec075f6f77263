"""Declarations of a broker object, repeated after a reconnect."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from yardkit.broker.base import DEAD_QUEUE, QueueSpec


@dataclass(frozen=True, slots=True)
class Binding:
    """Binding of a queue to an exchange."""

    queue: str
    exchange: str
    key: str


@dataclass(slots=True)
class Declared:
    """Declared queues, exchanges and bindings by name. Used by one I/O thread only."""

    queues: dict[str, QueueSpec] = field(
        default_factory=lambda: {DEAD_QUEUE: QueueSpec(DEAD_QUEUE)}
    )
    exchanges: dict[str, str] = field(default_factory=dict)
    # A dict for its order.
    bindings: dict[Binding, None] = field(default_factory=dict)

    def bindings_of(self, queue: str) -> Iterator[Binding]:
        return (binding for binding in list(self.bindings) if binding.queue == queue)

    def forget_queue(self, name: str) -> None:
        """Do not declare this queue again: it was deleted on purpose."""
        self.queues.pop(name, None)
        for binding in list(self.bindings_of(name)):
            del self.bindings[binding]
