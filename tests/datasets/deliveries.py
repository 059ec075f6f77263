"""Deliveries into a table of this host, and what has arrived there."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

from django.db.models import F
from django.utils import timezone

from apps.datasets.models import Dataset, Delivery, DeliveryFailure
from apps.datasets.queries.deliveries import DeliveryAccounting, accounting
from apps.datasets.services import delivery as service
from apps.datasets.services.deliveries import create_delivery
from apps.datasets.states import Origin
from apps.projects.models import Project


def make_delivery(dataset: Dataset, **values: Any) -> Delivery:
    known: dict[str, Any] = {"name": "copy", "kind": "table", "options": {"table": "items"}}
    return create_delivery(dataset=dataset, actor=None, **(known | values))


def make_data_delivery(project: Project) -> Delivery:
    """The delivery of a project, whose dataset has the same ID, with a dead letter."""
    known = Delivery.objects.filter(dataset__project=project).first()
    if known is not None:
        return known
    name = f"data-{Dataset.objects.count()}"
    dataset = Dataset.objects.create(
        project=project, name=name, origin=Origin.SOURCE, origin_name=name
    )
    delivery = Delivery.objects.create(
        pk=dataset.pk,
        dataset=dataset,
        name="copy",
        kind="table",
        options={"table": "items"},
        failed=1,
    )
    DeliveryFailure.objects.create(
        delivery=delivery,
        run_number=1,
        boot="b",
        seq=1,
        item={},
        reason="refused",
        at=timezone.now(),
    )
    return delivery


def deliver(now: datetime | None = None) -> int:
    """Work until nothing is due, as if pauses were over; return the number of passes."""
    passes = 0
    Delivery.objects.update(next_try_at=F("created_at"))
    while service.step(now=now or timezone.now()):
        Delivery.objects.update(next_try_at=F("created_at"))
        passes += 1
        assert passes < 200
    return passes


def rows_in(place: Path, table: str) -> list[dict[str, Any]]:
    if not place.exists():
        return []
    with closing(sqlite3.connect(place)) as file:
        file.row_factory = sqlite3.Row
        if not file.execute("SELECT 1 FROM sqlite_master WHERE name = ?", [table]).fetchone():
            return []
        return [dict(row) for row in file.execute(f'SELECT * FROM "{table}"')]  # noqa: S608 - ours


def balance(delivery: Delivery) -> DeliveryAccounting:
    """The accounting, which is right at every moment."""
    row = Delivery.objects.get(pk=delivery.pk)
    found = accounting(row)
    parts = found.delivered + found.waiting + found.failed + found.missed + found.skipped
    assert found.stored == parts, found
    assert found.failed == row.dead_letters.count()
    return found
