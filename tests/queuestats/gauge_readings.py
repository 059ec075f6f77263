"""What gauges were, for tests of those who note them."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from apps.queuestats.models import Sample
from apps.queuestats.queries import SeriesKey


def gauge_means(
    names: Collection[str], *, seconds: int, now: datetime
) -> dict[SeriesKey, tuple[float, float]]:
    """The mean and the latest second's mean of the last ``seconds``."""
    end = int(now.timestamp()) + 1
    rows = Sample.objects.filter(
        series__name__in=names, step=1, second__gte=end - seconds, second__lt=end
    ).order_by("second")
    found: dict[SeriesKey, list[tuple[float, int]]] = {}
    for name, project, label, value, count in rows.values_list(
        "series__name", "series__project_id", "series__label", "value", "count"
    ):
        found.setdefault(SeriesKey(name, project, label), []).append((value, count))
    return {
        key: (sum(v for v, _ in read) / sum(n for _, n in read), read[-1][0] / read[-1][1])
        for key, read in found.items()
    }
