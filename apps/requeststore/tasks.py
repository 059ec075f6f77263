"""Celery tasks of this app. The rows are the truth: a task too many does nothing."""

from __future__ import annotations

from typing import Any

from celery import shared_task

from apps.requeststore.services.scaling import decide_scale
from apps.requeststore.services.telling import tell_scale


@shared_task(name="requeststore.scale")
def scale(**_later: Any) -> None:
    """How many fetchers are wanted from now on; whoever starts them elsewhere is told."""
    tell_scale(decide_scale())
