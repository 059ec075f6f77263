"""Metrics of frontiers and resource pools."""

from __future__ import annotations

from collections import Counter
from typing import Final

from django.db.models import Count, Q
from django.utils import timezone

from apps.seeds.models import Frontier, Operation, Resource
from apps.seeds.queries import totals_of
from apps.seeds.states import ACTIVE_OPERATIONS, ResourceState
from yardkit import metrics
from yardkit.metrics import Reading


def _frontiers() -> dict[str, Reading]:
    names = {
        pk: (str(project), name)
        for pk, project, name in Frontier.objects.values_list("pk", "project", "name")
    }
    readings: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in (*SEEDS, *ADDED)}
    for pk, totals in totals_of(names).items():
        key = names[pk]
        for name in ("pending", "leased", "failed", "size_bytes", "added", "duplicates"):
            readings[f"seeds.{name}"][key] = getattr(totals, name)
        readings["seeds.succeeded"][key] = totals.succeeded
        readings["seeds.unaccounted"][key] = totals.added - totals.placed
    return dict(readings)


def _resources() -> dict[str, Reading]:
    """Return the number of resources by state; free ones can be leased now."""
    ready = Q(state=ResourceState.FREE, available_at__lte=timezone.now())
    rows = Resource.objects.filter(pool__is_enabled=True).order_by()
    counts = rows.values_list("pool__project", "pool__name").annotate(
        ready=Count("pk", filter=ready),
        leased=Count("pk", filter=Q(state=ResourceState.LEASED)),
        banned=Count("pk", filter=Q(state=ResourceState.BANNED)),
    )
    readings: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in POOLS}
    for project, pool, free, leased, banned in counts:
        key = (str(project), pool)
        readings["resources.free"][key] = free
        readings["resources.leased"][key] = leased
        readings["resources.banned"][key] = banned
    return dict(readings)


def _operations() -> Reading:
    rows = Operation.objects.filter(state__in=ACTIVE_OPERATIONS)
    counts = Counter(rows.values_list("frontier__project", flat=True))
    return {(str(project),): float(count) for project, count in counts.items()}


SEEDS: Final = {
    "seeds.pending": "Seeds of a frontier that wait.",
    "seeds.leased": "Seeds that somebody works on.",
    "seeds.failed": "Seeds that failed for good and are still kept.",
    "seeds.size_bytes": "Storage of a frontier.",
    "seeds.unaccounted": "Seeds that stand nowhere, or twice; anything but 0 is a fault.",
}
ADDED: Final = {
    "seeds.added": "Seeds added to a frontier, those forgotten since included.",
    "seeds.duplicates": "Seeds that were there already.",
    "seeds.succeeded": "Seeds that succeeded.",
}
POOLS: Final = {
    "resources.free": "Resources of a pool that somebody could have now.",
    "resources.leased": "Resources of a pool that somebody has.",
    "resources.banned": "Resources of a pool that are banned.",
}
metrics.group(SEEDS, _frontiers, ("project", "frontier"), ADDED)
metrics.group(POOLS, _resources, ("project", "pool"))
metrics.gauge(
    "seeds.operations",
    "Long operations on frontiers that have not ended.",
    ("project",),
    _operations,
    absent_is_zero=True,
)
