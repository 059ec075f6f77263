"""Metrics of logs: stored amounts and availability of the store."""

from __future__ import annotations

from collections import Counter
from typing import Final

from django.db.models import Count

from apps.joblogs.models import ErrorGroup
from apps.joblogs.services import log_store
from apps.joblogs.states import GroupState
from apps.joblogs.stores.base import LogStoreUnavailable, Usage
from yardkit import metrics
from yardkit.metrics import Reading
from yardkit.questions import Question

# Cached: amounts change slowly, and a remote store may hang.
FRESH_SECONDS: Final = 30.0
ANSWER_SECONDS: Final = 3.0


def _usages() -> list[Usage]:
    return log_store().usages()


_asker: Question[list[Usage]] = Question(_usages, fresh_seconds=FRESH_SECONDS, name="log usage")


def _up() -> float:
    try:
        _asker.read(ANSWER_SECONDS)
    except (LogStoreUnavailable, TimeoutError):
        return 0.0
    return 1.0


def _kept() -> dict[str, Reading]:
    """Return the stored amounts; no value while the store is unavailable."""
    lines: Counter[tuple[str, ...]] = Counter()
    sizes: Counter[tuple[str, ...]] = Counter()
    try:
        usages = _asker.read(ANSWER_SECONDS)
    except (LogStoreUnavailable, TimeoutError):
        return {}
    for usage in usages:
        lines[(str(usage.project),)] += usage.lines
        sizes[(str(usage.project),)] += usage.bytes
    return {"logs.lines": dict(lines), "logs.bytes": dict(sizes)}


def _groups() -> Reading:
    rows = ErrorGroup.objects.filter(state=GroupState.OPEN).order_by()
    counts = rows.values_list("project").annotate(Count("pk"))
    return {(str(project),): float(count) for project, count in counts}


metrics.gauge("logs.store_up", "1 while the log store answers, else 0.", read=_up)
metrics.group(
    {"logs.lines": "Stored log lines.", "logs.bytes": "Size of the stored log lines."},
    _kept,
    ("project",),
)
metrics.gauge(
    "logs.error_groups",
    "Error groups that are not ignored.",
    ("project",),
    _groups,
    absent_is_zero=True,
)
