"""Signal handlers for runs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.dispatch import receiver

from apps.jobs.events import run_ended
from apps.jobs.models import Run
from apps.queuestats.services.job_days import add_ended_run


@receiver(run_ended, dispatch_uid="queuestats.count_ended_run")
def run_has_ended(sender: object, run: Run, now: datetime, **kwargs: Any) -> None:
    """Count the run among those of its job and day, in the transaction of its end."""
    add_ended_run(run, now=now)
