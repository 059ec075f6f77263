"""Metrics of datasets: what is stored, and what waits to be moved into tables."""

from __future__ import annotations

from typing import Final

from django.db.models import Count, Min, Q, Sum

from apps.datasets.models import DataFile, Dataset, Delivery
from apps.datasets.queries.deliveries import accountings, lag_seconds
from apps.datasets.states import Kind, Level
from apps.runtime.queries import database_now
from yardkit import metrics
from yardkit.metrics import Reading


def _kept() -> dict[str, Reading]:
    rows = Dataset.objects.order_by().values("project")
    found = rows.annotate(
        of_items=Sum("items", filter=Q(kind=Kind.ITEMS), default=0),
        of_bytes=Sum("bytes"),
        of_json=Sum("raw_bytes"),
    )
    readings: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in KEPT}
    for row in found:
        key = (str(row["project"]),)
        readings["datasets.items"][key] = row["of_items"]
        readings["datasets.bytes"][key] = row["of_bytes"]
        readings["datasets.json_bytes"][key] = row["of_json"]
    return dict(readings)


def _segments() -> dict[str, Reading]:
    found = DataFile.objects.filter(level=Level.SEGMENT).aggregate(
        count=Count("pk"), oldest=Min("created_at")
    )
    oldest = found["oldest"]
    age = 0.0 if oldest is None else (database_now() - oldest).total_seconds()
    return {"datasets.segments": found["count"], "datasets.oldest_segment_seconds": max(0.0, age)}


KEPT: Final = {
    "datasets.items": "Stored items.",
    "datasets.bytes": "Size of the files with stored items, requests and indexes of pages.",
    "datasets.json_bytes": "Size of these rows as JSON.",
}
metrics.group(KEPT, _kept, ("project",))
metrics.group(
    {
        "datasets.segments": "Files of fresh items that are not in a table yet.",
        "datasets.oldest_segment_seconds": "Age of the oldest of these files.",
    },
    _segments,
)


def _deliveries() -> dict[str, Reading]:
    rows = list(Delivery.objects.select_related("dataset").order_by("pk"))
    found = accountings(rows)
    now = database_now()
    readings: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in DELIVERIES}
    for row in rows:
        key = (str(row.dataset.project_id), f"{row.dataset.name}/{row.name}"[:_LABEL_CHARACTERS])
        readings["deliveries.waiting"][key] = found[row.pk].due
        readings["deliveries.undelivered"][key] = row.failed
        readings["deliveries.lag_seconds"][key] = lag_seconds(row, now)
    return dict(readings)


_LABEL_CHARACTERS: Final = 64
DELIVERIES: Final = {
    "deliveries.waiting": "Items that a delivery has not delivered yet.",
    "deliveries.undelivered": "Items that the target of a delivery has refused.",
    "deliveries.lag_seconds": "How long items have been waiting for a delivery.",
}
metrics.group(DELIVERIES, _deliveries, ("project", "delivery"))
