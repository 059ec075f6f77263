"""Gauges of open incidents and waiting notifications."""

from __future__ import annotations

from django.db.models import Count

from apps.alerts.models import Incident, Notice
from apps.alerts.states import IncidentState, NoticeState
from yardkit import metrics
from yardkit.metrics import Reading


def _incidents() -> Reading:
    rows = Incident.objects.filter(state=IncidentState.OPEN).order_by()
    counts = rows.values_list("project", "severity").annotate(Count("pk"))
    return {("" if p is None else str(p), severity): float(n) for p, severity, n in counts}


def _notices() -> float:
    return float(Notice.objects.filter(state=NoticeState.WAITING).count())


metrics.gauge(
    "incidents.open", "Open incidents.", ("project", "severity"), _incidents, absent_is_zero=True
)
metrics.gauge("notices.waiting", "Notices that have not been sent yet.", read=_notices)
