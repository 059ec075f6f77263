"""How much waits in the broker's queues, asked so that a page never waits long for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from apps.queuestats.texts import TITLES
from apps.runtime.services import shared_broker
from yardkit import topology
from yardkit.broker import Broker, BrokerError, Unroutable
from yardkit.questions import Question

# A page waits this long for the broker and no longer.
PAGE_SECONDS: Final = 0.8
# Many open pages ask often; one answer serves all of them for this long.
FRESH_SECONDS: Final = 2.0

# Celery's queues have no depth where they are files.
SHOWN: Final = {
    name: title for name, title in TITLES.items() if name not in (topology.TASKS, topology.BUILDS)
}


@dataclass(frozen=True, slots=True)
class QueueBacklog:
    """One queue: ``ready`` waits, ``unacked`` is handed out (None where it is not known)."""

    name: str
    title: Promise
    ready: int
    unacked: int | None
    consumers: int

    @property
    def abandoned(self) -> bool:
        """Messages wait and nobody reads."""
        return self.ready > 0 and self.consumers == 0


@dataclass(frozen=True, slots=True)
class Backlog:
    """The queues, or why they are not known."""

    lines: list[QueueBacklog] = field(default_factory=list)
    problem: Promise | str = ""
    detail: str = ""

    @property
    def abandoned(self) -> list[QueueBacklog]:
        """Queues with messages and without a reader."""
        return [line for line in self.lines if line.abandoned]


class BacklogReader:
    """Asks in a thread of its own, one question at a time."""

    def __init__(self) -> None:
        self._asker = Question(_ask, fresh_seconds=FRESH_SECONDS, name="backlog")

    def read(self, timeout: float = PAGE_SECONDS) -> Backlog:
        """The backlog, at most 2 s old; after ``timeout`` seconds without one, the problem.

        The time counts from the question: a broker that hangs delays one page and no other.
        """
        try:
            return self._asker.read(timeout)
        except TimeoutError:
            return Backlog(problem=_("The broker has not responded yet."))


def _ask() -> Backlog:
    try:
        broker = shared_broker()
        lines = [_line(broker, name, title) for name, title in SHOWN.items()]
    except BrokerError as error:
        return Backlog(problem=_("The broker does not respond."), detail=str(error))
    return Backlog(lines=[line for line in lines if line is not None])


def _line(broker: Broker, name: str, title: Promise) -> QueueBacklog | None:
    try:
        depth = broker.depth(name)
    except Unroutable:
        # Nobody has declared it yet.
        return None
    unacked = depth.unacked if depth.unacked >= 0 else None
    return QueueBacklog(name, title, depth.ready, unacked, depth.consumers)


_reader = BacklogReader()


def backlog() -> Backlog:
    """The backlog of the shared queues, within a second."""
    return _reader.read()
