"""Accounting of deliveries: stored = delivered + waiting + failed + missed + skipped.

Items of replays are not delivered, and not counted here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q, QuerySet, Sum

from apps.datasets.models import DataFile, DatasetRun, Delivery
from apps.datasets.queries.items import open_reader, replays
from apps.datasets.states import DeliveryMode, DeliveryState
from apps.jobs.models import Run


@dataclass(frozen=True, slots=True)
class DeliveryAccounting:
    """Items of a delivery. ``due``: of those that wait, those whose run has ended or need not."""

    stored: int
    delivered: int
    waiting: int
    failed: int
    missed: int
    skipped: int
    due: int

    def as_dict(self) -> dict[str, int]:
        """Return the values for REST and pages."""
        return {
            "stored": self.stored,
            "delivered": self.delivered,
            "waiting": self.waiting,
            "failed": self.failed,
            "missed": self.missed,
            "skipped": self.skipped,
        }


def accounting(delivery: Delivery) -> DeliveryAccounting:
    """Return the accounting of one delivery, see ``accountings``."""
    return accountings([delivery])[delivery.pk]


def accountings(deliveries: Iterable[Delivery]) -> dict[int, DeliveryAccounting]:
    """Return the accounting of deliveries by ID; one query.

    Items are stored meanwhile, so the deliveries must have been read before.
    """
    rows = list(deliveries)
    totals = {
        row["dataset"]: row
        for row in DatasetRun.objects.filter(dataset__in={row.dataset_id for row in rows})
        .exclude(run_number__in=Run.objects.filter(replay_of__isnull=False).values("pk"))
        .order_by()
        .values("dataset")
        .annotate(total=Sum("stored"), ended=Sum("stored", filter=_passed()))
    }
    found = {}
    for row in rows:
        total = totals.get(row.dataset_id, {"total": 0, "ended": 0})
        stored = total["total"] or 0
        due = stored if row.mode == DeliveryMode.CONTINUOUS else total["ended"] or 0
        known = known_items(row)
        found[row.pk] = DeliveryAccounting(
            stored=stored,
            delivered=row.delivered,
            waiting=max(0, stored - known),
            failed=row.failed,
            missed=row.missed,
            skipped=row.skipped,
            due=max(0, due - known),
        )
    return found


def known_items(delivery: Delivery) -> int:
    """Return the number of items that do not wait any more."""
    return delivery.delivered + delivery.failed + delivery.missed + delivery.skipped


def stored_until(delivery: Delivery, batch: int) -> int:
    """Return the number of items ever stored whose turn was up to a batch.

    Two queries; where files of the table hold later batches as well, they are read. Exact only
    while no items are stored: otherwise too small.
    """
    without = replays(delivery.dataset)
    files = DataFile.objects.filter(dataset=delivery.dataset_id, last_batch__gt=batch)
    files = files.exclude(run_number__in=without)
    runs: QuerySet[DatasetRun] = DatasetRun.objects.filter(dataset=delivery.dataset_id)
    runs = runs.exclude(run_number__in=without)
    if delivery.mode == DeliveryMode.AT_END:
        runs = runs.filter(_passed(batch))
        files = files.filter(run_number__in=runs.values("run_number"))
    total = runs.aggregate(total=Sum("stored"))["total"] or 0
    later = list(files.values_list("first_batch", "items", "run_number"))
    whole = sum(items for first, items, _run in later if first > batch)
    partly = {run for first, _items, run in later if first <= batch}
    if not partly:
        return total - whole
    wanted = {run for _first, _items, run in later}
    with open_reader(delivery.dataset, wanted, since=batch + 1) as reader:
        return total - reader.count_since(batch + 1)


def _passed(batch: int | None = None) -> Q:
    """Runs whose turn has come, up to a batch; a deleted one has none any more."""
    settled = Q(settled_batch__isnull=False) if batch is None else Q(settled_batch__lte=batch)
    return settled | Q(settled_batch=None, deleted_at__isnull=False)


def lag_seconds(delivery: Delivery, now: datetime) -> float:
    """Return since when something waits; 0 if all is delivered or the delivery is paused."""
    if delivery.behind_since is None or delivery.state == DeliveryState.PAUSED:
        return 0.0
    return max(0.0, (now - delivery.behind_since).total_seconds())
