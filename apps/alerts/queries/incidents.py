"""Queries for open incidents."""

from __future__ import annotations

from typing import Final

from django.db.models import Case, IntegerField, QuerySet, Value, When

from apps.alerts.models import Incident
from apps.alerts.states import Severity

# Upper bound for overviews; the incidents page lists all.
MOST_SHOWN: Final = 200


def open_incidents(user: object, *, limit: int = MOST_SHOWN) -> list[Incident]:
    """Return open incidents visible to ``user``, most severe first, then newest. One query."""
    return list(_open(user).select_related("project", "acknowledged_by")[:limit])


def count_open_incidents(user: object) -> dict[str, int]:
    """Count open, unacknowledged incidents by severity, for the badge. One query."""
    rows = Incident.objects.visible_to(user).open().filter(acknowledged_at=None)
    counts = dict.fromkeys(Severity.values, 0)
    for severity in rows.values_list("severity", flat=True):
        counts[severity] += 1
    return counts


def _open(user: object) -> QuerySet[Incident]:
    worst = Case(
        *(When(severity=level, then=Value(rank)) for rank, level in enumerate(Severity.values)),
        output_field=IntegerField(),
    )
    rows = Incident.objects.visible_to(user).open()
    return rows.annotate(rank=worst).order_by("-rank", "-opened_at", "-id")
