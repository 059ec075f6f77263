"""Depths of the broker's queues; a hanging broker delays callers only briefly."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from django.conf import settings

from apps.runtime.queries import live_daemons
from apps.runtime.services.broker import shared_broker
from yardkit import topology
from yardkit.broker import Broker, BrokerError, Unroutable
from yardkit.broker.base import DEAD_QUEUE
from yardkit.questions import Question
from yardkit.queues import QueueReading

# Result is cached for this long.
FRESH_SECONDS: Final = 2.0
ANSWER_SECONDS: Final = 3.0
# Most queues to query: each costs a round trip.
MOST_QUEUES: Final = 500
# Shared queues of the platform. The dead-letter queue holds messages not yet stored as rows.
_OWN: Final = (*(spec.name for spec in topology.SHARED), DEAD_QUEUE)
_CELERY: Final = (topology.TASKS, topology.BUILDS)


@dataclass(frozen=True, slots=True)
class BrokerQueue:
    """A queue of the broker whose depth is measured."""

    name: str
    project: int | None = None


@dataclass(frozen=True, slots=True)
class _Depth:
    ready: int
    unacked: int | None
    consumers: int


_asked: list[Callable[[], Iterable[BrokerQueue]]] = []


def watch_queues(read: Callable[[], Iterable[BrokerQueue]]) -> None:
    """Register a function that returns queues to measure. Called when apps are ready."""
    _asked.append(read)


def broker_readings() -> list[QueueReading]:
    """Return the depth of every known queue.

    Raises BrokerError or TimeoutError if the broker does not answer.
    """
    wanted = [BrokerQueue(name) for name in _OWN]
    if _on_rabbitmq():
        wanted += [BrokerQueue(name) for name in _CELERY]
    for read in _asked:
        wanted += read()
    wanted = wanted[:MOST_QUEUES]
    _wanted[:] = [queue.name for queue in wanted]
    depths = _asker.read(ANSWER_SECONDS)
    settled, epoch = _settled()
    engine = "rabbitmq" if _on_rabbitmq() else "sqlite"
    readings = [
        QueueReading(
            name=queue.name,
            engine=engine,
            project=queue.project,
            waiting=depth.ready,
            taken=depth.unacked,
            readers=depth.consumers,
            out_total=settled.get(queue.name),
            epoch=epoch,
        )
        for queue in wanted
        if (depth := depths.get(queue.name)) is not None
    ]
    return readings if _on_rabbitmq() else [*readings, *_celery_files()]


def broker_answers() -> bool:
    """Return whether the broker reports queue depths within a few seconds."""
    try:
        _asker.read(ANSWER_SECONDS)
    except (BrokerError, TimeoutError):
        return False
    return True


def _on_rabbitmq() -> bool:
    return str(settings.BROKER_URL).startswith(("amqp://", "amqps://"))


def settled_totals() -> dict[str, int]:
    """Return how many messages of each queue the living daemons have acknowledged."""
    return _settled()[0]


def _settled() -> tuple[dict[str, int], str]:
    """Return acknowledged counts of living daemons by queue, and a token that changes with the set
    of daemons.
    """
    totals: dict[str, int] = {}
    boots = []
    for boot, detail in live_daemons().values_list("boot", "detail"):
        settled = detail.get("settled") if isinstance(detail, dict) else None
        if not isinstance(settled, dict):
            continue
        boots.append(boot)
        for queue, count in settled.items():
            totals[queue] = totals.get(queue, 0) + int(count)
    return totals, hashlib.sha256(" ".join(sorted(boots)).encode()).hexdigest()[:16]


def _celery_files() -> list[QueueReading]:
    """Return the number of tasks queued as files in the data folder, see ``celery_broker``."""
    options = settings.CELERY_BROKER_TRANSPORT_OPTIONS
    folder = Path(options["data_folder_in"]) if "data_folder_in" in options else None
    if folder is None or not folder.is_dir():
        return []
    names = [path.name for path in folder.iterdir()]
    return [
        QueueReading(
            name=queue,
            engine="files",
            waiting=sum(name.endswith(f".{queue}.msg") for name in names),
        )
        for queue in _CELERY
    ]


# Queues of the next query. A list, since the query runs in another thread.
_wanted: list[str] = list(_OWN)


def _ask() -> dict[str, _Depth]:
    broker = shared_broker()
    depths = ((name, _depth(broker, name)) for name in list(_wanted))
    return {name: depth for name, depth in depths if depth is not None}


def _depth(broker: Broker, name: str) -> _Depth | None:
    try:
        depth = broker.depth(name)
    except Unroutable:
        # The queue is not declared yet, or has expired.
        return None
    return _Depth(depth.ready, depth.unacked if depth.unacked >= 0 else None, depth.consumers)


_asker: Question[dict[str, _Depth]] = Question(_ask, fresh_seconds=FRESH_SECONDS, name="depths")
