"""Incidents that nobody reads any more."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from apps.alerts.models import Incident, RuleMute

KEEP: Final = timedelta(days=365)
AT_ONCE: Final = 1_000


def prune_incidents(*, now: datetime) -> int:
    """Delete incidents that ended a year ago, with their story, and mutes that are over."""
    old = Incident.objects.filter(ended_at__lt=now - KEEP).order_by("ended_at")
    ids = list(old.values_list("pk", flat=True)[:AT_ONCE])
    RuleMute.objects.filter(until__lt=now).delete()
    return Incident.objects.filter(pk__in=ids).delete()[0]
