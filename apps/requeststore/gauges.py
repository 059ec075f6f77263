"""Metrics of bizzes, their queues, storage nodes and fetchers."""

from __future__ import annotations

import uuid
from collections import Counter
from datetime import datetime
from typing import Any, Final

from django.conf import settings

from apps.queuestats.queries import sums_between
from apps.queuestats.queries.series import HOUR
from apps.requeststore.engine.forecast import STALE_SECONDS
from apps.requeststore.models import QueueReport, ScaleState
from apps.requeststore.queries.health import NodeState, nodes
from apps.requeststore.queries.outlook import CREATED, RATES, BizKey, reports
from apps.runtime.queries import database_now
from yardkit import metrics, queues
from yardkit.metrics import Reading
from yardkit.queues import QueueReading

# Age (seconds) at which the counts of a second are complete.
SETTLED_SECONDS: Final = 4


def _bizzes() -> dict[str, Reading]:
    now = database_now()
    gauges: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in BIZ}
    for (project, biz), own in reports()[0].items():
        key = (str(project), biz)
        gauges["requests.new"][key] = own.new
        gauges["requests.taken"][key] = own.taken
        gauges["requests.expired"][key] = own.expired
        gauges["requests.expiring"][key] = own.expiring_in_an_hour
        gauges["requests.size_bytes"][key] = own.size_bytes
        oldest = own.oldest_new_at
        age = 0.0 if oldest is None else max(0.0, (now - oldest).total_seconds())
        gauges["requests.oldest_seconds"][key] = age
        gauges["requests.shards_in_trouble"][key] = len(own.problems)
    return dict(gauges)


def _nodes() -> dict[str, Reading]:
    gauges: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in NODE}
    for line in nodes(database_now()):
        key = (line.row.name,)
        gauges["node.up"][key] = float(line.state not in (NodeState.PROBLEM, NodeState.SILENT))
        gauges["node.slow_operations"][key] = len(line.slow)
        _known(gauges["node.storage_bytes"], key, line.row.storage_bytes)
        _known(gauges["node.memory_bytes"], key, line.row.memory_bytes)
        _known(gauges["node.connections"], key, line.row.connections)
    return dict(gauges)


def _known(into: dict[tuple[str, ...], float], key: tuple[str, ...], value: int | None) -> None:
    if value is not None:
        into[key] = float(value)


def _fetchers() -> float:
    state = ScaleState.objects.filter(pk=1).first()
    return 1.0 if state is None else float(state.wanted)


class _RequestTotals:
    """Stored and ended requests of each biz since this process began to measure.

    Only differences are used, see ``yardkit.queues``; one process at a time measures.
    """

    def __init__(self) -> None:
        self._epoch = uuid.uuid4().hex
        self._until = 0
        self._came = Counter[BizKey]()
        self._went = Counter[BizKey]()

    def read(self, now: datetime) -> None:
        """Add the counts since the last call, as far as they have settled."""
        until = int(now.timestamp()) - SETTLED_SECONDS
        if self._until:
            sums = sums_between(RATES, since=max(self._until, until - HOUR), until=until)
            for key, total in sums.items():
                if key.project is not None:
                    into = self._came if key.name == CREATED else self._went
                    into[key.project, key.label] += round(total)
        self._until = max(self._until, until)

    def of(self, key: BizKey) -> dict[str, Any]:
        """Return the totals of a biz for its queue reading."""
        return {"in_total": self._came[key], "out_total": self._went[key], "epoch": self._epoch}


_flows = _RequestTotals()


def _queues() -> list[QueueReading]:
    """Return the queue readings of the last upkeep; an old report has no values."""
    now = database_now()
    _flows.read(now)
    readings = []
    for row in QueueReport.objects.all():
        stale = (now - row.reported_at).total_seconds() > STALE_SECONDS
        readings.append(
            QueueReading(
                name=f"biz:{row.biz}",
                project=row.project_id,
                engine="redis" if settings.REDIS_URL else _broker(),
                address=row.name,
                waiting=None if stale else row.waiting,
                taken=None if stale else row.taken,
                problem=row.problem,
                **_flows.of((row.project_id, row.biz)),
            )
        )
    return readings


def _broker() -> str:
    return "rabbitmq" if str(settings.BROKER_URL).startswith("amqp") else "sqlite"


BIZ: Final = {
    "requests.new": "New stored requests.",
    "requests.taken": "Leased stored requests.",
    "requests.expired": "Stored requests that have expired, in total.",
    "requests.expiring": "New stored requests that expire within an hour.",
    "requests.size_bytes": "Storage used.",
    "requests.oldest_seconds": "Age of the oldest new request.",
    "requests.shards_in_trouble": "Shards with a problem.",
}
NODE: Final = {
    "node.up": "1 while a storage node answers, else 0.",
    "node.slow_operations": "Slow operations.",
    "node.storage_bytes": "Storage used.",
    "node.memory_bytes": "Memory used.",
    "node.connections": "Open connections.",
}
metrics.group(BIZ, _bizzes, ("project", "biz"))
metrics.group(NODE, _nodes, ("node",))
metrics.gauge("fetchers.wanted", "Fetchers that are wanted.", read=_fetchers)
queues.register("requests", _queues)
