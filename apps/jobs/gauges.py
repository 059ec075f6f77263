"""Gauges of runs, schedules and hosts."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from django.db.models import Count, F, Min
from django.db.models.functions import Coalesce
from django.utils import timezone

from apps.jobs.models import Host, Run, Schedule
from apps.jobs.states import RunState
from apps.runtime.services.depths import BrokerQueue, watch_queues
from yardkit import metrics, topology
from yardkit.metrics import Reading

# A runner that is silent for longer counts as removed, not as offline.
WATCHED: Final = timedelta(hours=1)


def _active() -> Reading:
    rows = Run.objects.active().order_by()
    counts = rows.values_list("job__project", "state").annotate(Count("pk"))
    return {(str(project), state): float(count) for project, state, count in counts}


def _waiting() -> Reading:
    """Count waiting runs, without retries whose time has not come."""
    now = timezone.now()
    rows = Run.objects.filter(state=RunState.QUEUED).exclude(not_before__gt=now).order_by()
    since = Coalesce(F("not_before"), F("created_at"))
    oldest_by_project = rows.values_list("job__project").annotate(oldest=Min(since))
    return {(str(project),): _seconds(oldest, now) for project, oldest in oldest_by_project}


def _schedules() -> dict[str, Reading]:
    now = timezone.now()
    late = Schedule.objects.filter(next_at__lt=now).order_by().values_list("job__project")
    counts: dict[tuple[str, ...], float] = {}
    worst: dict[tuple[str, ...], float] = {}
    for project, count, oldest in late.annotate(count=Count("pk"), oldest=Min("next_at")):
        counts[(str(project),)] = float(count)
        worst[(str(project),)] = _seconds(oldest, now)
    return {"schedules.late": counts, "schedules.late_seconds": worst}


def _hosts() -> dict[str, Reading]:
    now = timezone.now()
    gauges: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in EACH}
    for host in Host.objects.all():
        online = host.is_online(now)
        gauges["host.online"][(host.name,)] = float(online)
        if online:
            gauges["host.running"][(host.name,)] = host.running
            gauges["host.capacity"][(host.name,)] = host.capacity
            gauges["host.cpu_percent"][(host.name,)] = host.cpu_percent
            gauges["host.free_memory_bytes"][(host.name,)] = host.memory_free_bytes
    return dict(gauges)


def _queues() -> list[BrokerQueue]:
    known = Host.objects.filter(beat_at__gt=timezone.now() - WATCHED).order_by("pk")
    names = known.values_list("name", flat=True)
    return [BrokerQueue(topology.runner_wakeups(name).name) for name in names]


def _seconds(moment: datetime, now: datetime) -> float:
    return max(0.0, (now - moment).total_seconds())


EACH: Final = {
    "host.online": "1 while the host's runner reports, else 0.",
    "host.running": "Active runs.",
    "host.capacity": "Maximum number of runs.",
    "host.cpu_percent": "CPU in percent of all cores.",
    "host.free_memory_bytes": "Free memory.",
}
metrics.gauge(
    "runs.active", "Active runs by state.", ("project", "state"), _active, absent_is_zero=True
)
metrics.gauge(
    "runs.waiting_seconds",
    "Longest wait of a run for a host.",
    ("project",),
    _waiting,
    absent_is_zero=True,
)
metrics.group(
    {
        "schedules.late": "Schedules whose planned time has passed without a start.",
        "schedules.late_seconds": "Delay of the latest schedule.",
    },
    _schedules,
    ("project",),
    absent_is_zero=True,
)
metrics.group(EACH, _hosts, ("host",))
watch_queues(_queues)
