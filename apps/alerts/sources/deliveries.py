"""Deliveries of datasets that fail."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from django.utils.translation import gettext_lazy as _

from apps.alerts.engine.events import Occurrence
from apps.datasets.models import Delivery
from apps.datasets.states import DeliveryState

_REASON: Final = 200


class DeliveryFailing:
    """Deliveries whose target does not take items."""

    name = "data.delivery_failing"
    title: object = _("items are not delivered")
    sentence: object = _("%(delivery)s of %(dataset)s is not delivered (%(reason)s)")
    advice: object = _(
        "Check the target, its address and the credentials. Nothing is lost: items wait and are"
        " delivered as soon as it takes them."
    )
    facts: tuple[str, ...] = ("delivery", "dataset", "reason", "failures")

    def now(self, at: datetime) -> Iterator[Occurrence]:
        """Yield one occurrence per failing delivery."""
        rows = Delivery.objects.filter(state=DeliveryState.FAILING).select_related("dataset")
        for row in rows.order_by("pk"):
            yield Occurrence(
                id=f"delivery:{row.pk}",
                project=row.dataset.project_id,
                key=f"delivery:{row.pk}",
                at=row.behind_since or at,
                facts={
                    "delivery": row.name,
                    "dataset": row.dataset.name,
                    "reason": row.error[:_REASON],
                    "failures": row.failures,
                },
                address=f"/data/{row.dataset_id}/deliveries",
            )


SOURCES: Final = (DeliveryFailing(),)
