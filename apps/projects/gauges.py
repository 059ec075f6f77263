"""Gauges of builds."""

from __future__ import annotations

from django.db.models import Count, Min
from django.utils import timezone

from apps.projects.models import Build
from apps.projects.states import BuildState
from yardkit import metrics
from yardkit.metrics import Reading


def _active() -> Reading:
    rows = Build.objects.active().order_by().values_list("project", "state")
    return {(str(project), state): float(n) for project, state, n in rows.annotate(Count("pk"))}


def _waiting() -> Reading:
    now = timezone.now()
    rows = Build.objects.filter(state=BuildState.QUEUED).order_by().values_list("project")
    waiting = rows.annotate(oldest=Min("created_at"))
    return {(str(project),): max(0.0, (now - at).total_seconds()) for project, at in waiting}


metrics.gauge(
    "builds.active", "Active builds by state.", ("project", "state"), _active, absent_is_zero=True
)
metrics.gauge(
    "builds.waiting_seconds",
    "Longest wait of a build for a worker.",
    ("project",),
    _waiting,
    absent_is_zero=True,
)
