"""Lengths of the broker's queues, read in a thread so that pages wait at most 0.8 s."""

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

# Longest wait of a page for the broker.
PAGE_SECONDS: Final = 0.8
# Results are cached for this long, shared by all open pages.
FRESH_SECONDS: Final = 2.0

# Celery's queues have no length with the embedded broker.
SHOWN: Final = {
    name: title for name, title in TITLES.items() if name not in (topology.TASKS, topology.BUILDS)
}


@dataclass(frozen=True, slots=True)
class QueueBacklog:
    """One queue: messages waiting (``ready``) and delivered but unacknowledged (None: unknown)."""

    name: str
    title: Promise
    ready: int
    unacked: int | None
    consumers: int

    @property
    def abandoned(self) -> bool:
        """Whether messages wait without a consumer."""
        return self.ready > 0 and self.consumers == 0


@dataclass(frozen=True, slots=True)
class Backlog:
    """The queues, or the problem that prevented reading them."""

    lines: list[QueueBacklog] = field(default_factory=list)
    problem: Promise | str = ""
    detail: str = ""

    @property
    def abandoned(self) -> list[QueueBacklog]:
        """Queues with messages and without a consumer."""
        return [line for line in self.lines if line.abandoned]


class BacklogReader:
    """Reads queue lengths in a thread of its own, one read at a time."""

    def __init__(self) -> None:
        self._asker = Question(_ask, fresh_seconds=FRESH_SECONDS, name="backlog")

    def read(self, timeout: float = PAGE_SECONDS) -> Backlog:
        """Return queue lengths at most 2 s old, or the problem after ``timeout`` seconds.

        The timeout counts from the start of the read: a broker that hangs delays one page only.
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
        # Not declared yet.
        return None
    unacked = depth.unacked if depth.unacked >= 0 else None
    return QueueBacklog(name, title, depth.ready, unacked, depth.consumers)


_reader = BacklogReader()


def backlog() -> Backlog:
    """Return the lengths of the shared queues within a second."""
    return _reader.read()
