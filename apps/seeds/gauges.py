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
    "seeds.pending": "Pending seeds.",
    "seeds.leased": "Leased seeds.",
    "seeds.failed": "Failed seeds that are still stored.",
    "seeds.size_bytes": "Storage used.",
    "seeds.unaccounted": "Seeds without exactly one state; anything but 0 is an error.",
}
ADDED: Final = {
    "seeds.added": "Added seeds, including forgotten ones.",
    "seeds.duplicates": "Duplicate seeds.",
    "seeds.succeeded": "Succeeded seeds.",
}
POOLS: Final = {
    "resources.free": "Free resources.",
    "resources.leased": "Leased resources.",
    "resources.banned": "Banned resources.",
}
metrics.group(SEEDS, _frontiers, ("project", "frontier"), ADDED)
metrics.group(POOLS, _resources, ("project", "pool"))
metrics.gauge(
    "seeds.operations",
    "Active operations on frontiers.",
    ("project",),
    _operations,
    absent_is_zero=True,
)
