"""Signal receivers of the datasets app."""

from __future__ import annotations

from typing import Any

from django.db.models.signals import pre_delete
from django.dispatch import receiver

from apps.access.services import record
from apps.datasets.models import Dataset


@receiver(pre_delete, sender=Dataset, dispatch_uid="datasets.dataset_goes")
def dataset_goes(sender: object, instance: Dataset, **kwargs: Any) -> None:
    """Record how much is deleted with a dataset, also when its project is purged."""
    record(
        actor=None,
        action="datasets.delete",
        obj=instance,
        actor_label="retention",
        before={"items": instance.items, "bytes": instance.bytes},
    )
