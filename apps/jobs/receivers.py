"""What goes with a row that is deleted, whoever deletes it."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.models.signals import post_delete
from django.dispatch import receiver

from apps.jobs.models import Schedule


@receiver(post_delete, sender=Schedule, dispatch_uid="jobs.forget_wake_up")
def schedule_was_deleted(sender: object, instance: Schedule, **kwargs: Any) -> None:
    """A schedule goes with its job; beat's row for it goes too (seed S1.59)."""
    # Every process has this receiver, and few delete schedules.
    from apps.jobs.services.wakeups import forget_wake_up

    task_id = instance.periodic_task_id
    if task_id is not None:
        transaction.on_commit(lambda: forget_wake_up(task_id), robust=True)
