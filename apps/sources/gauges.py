"""Gauges of sources and their queues."""

from __future__ import annotations

from typing import Final

from django.utils import timezone

from apps.runtime.services.depths import BrokerQueue, watch_queues
from apps.sources.models import Harvest, RecordQueue, SourceState
from apps.sources.states import HELD, HarvestState, SourceActivity
from yardkit import metrics
from yardkit.metrics import Reading


def _sources() -> dict[str, Reading]:
    now = timezone.now()
    gauges: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in SOURCES}
    for state in SourceState.objects.defer("overlap", "checkpoint"):
        key = (str(state.project_id), state.name)
        gauges["source.harvesting"][key] = float(state.activity in HELD)
        gauges["source.waiting"][key] = float(state.activity == SourceActivity.QUEUED)
        gauges["source.problem"][key] = float(bool(state.problem))
        gauges["source.gaps"][key] = len(state.gaps or [])
        due = state.next_run_at
        late = due is not None and state.activity == SourceActivity.IDLE
        seconds = (now - due).total_seconds() if late and due is not None else 0.0
        gauges["source.late_seconds"][key] = max(0.0, seconds)
    return dict(gauges)


def _harvests() -> dict[str, Reading]:
    """Gauges of active imports only."""
    gauges: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in HARVESTS}
    running = Harvest.objects.filter(state=HarvestState.RUNNING)
    for row in running.only("project", "source", "read", "published"):
        key = (str(row.project_id), row.source)
        gauges["harvest.read"][key] = row.read
        gauges["harvest.published"][key] = row.published
    return dict(gauges)


def _queues() -> list[BrokerQueue]:
    return [
        BrokerQueue(name, project)
        for name, project in RecordQueue.objects.values_list("name", "project")
    ]


SOURCES: Final = {
    "source.harvesting": "1 while an import runs, else 0.",
    "source.waiting": "1 while the source waits for a collector, else 0.",
    "source.problem": "1 while the source has a problem, else 0.",
    "source.gaps": "Ranges that were never read.",
    "source.late_seconds": "Delay of the next import.",
}
HARVESTS: Final = {
    "harvest.read": "Records read by the running import.",
    "harvest.published": "Records published by the running import.",
}
metrics.group(SOURCES, _sources, ("project", "source"))
metrics.group(HARVESTS, _harvests, ("project", "source"))
watch_queues(_queues)
