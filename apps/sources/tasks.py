"""Celery tasks of sources."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from apps.sources.services.consumption import prune_expired
from apps.sources.services.queues import prune_spans


@shared_task(name="sources.forget_records", ignore_result=True)
def forget_records(**_unknown: object) -> int:
    """Delete expired and acknowledged records; return the number of rows."""
    now = timezone.now()
    return prune_expired(now=now) + prune_spans(now=now)
