"""Table rows of operations: progress and result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from apps.seeds.admin.moments import begins, granularity_of, zone_of
from apps.seeds.models import Frontier, Operation
from apps.seeds.states import ACTIVE_OPERATIONS, OperationKind, OperationState

SHOWN: Final = 8
# An active operation without a heartbeat for this time has no worker.
SILENT_SECONDS: Final = 60.0
TONES: Final = {
    OperationState.WAITING: "default",
    OperationState.RUNNING: "info",
    OperationState.DONE: "success",
    OperationState.FAILED: "danger",
    OperationState.CANCELLED: "warning",
}
# Labels of an operation's counters.
_COUNTS: Final[dict[str, Any]] = {
    "reopened": gettext_lazy("opened again"),
    "duplicates": gettext_lazy("already in the target segment"),
    "segments": gettext_lazy("segments"),
    "seeds": gettext_lazy("seeds"),
    "leased": gettext_lazy("leased"),
    "moved": gettext_lazy("moved"),
    "met": gettext_lazy("merged as duplicates"),
    "kept": gettext_lazy("kept their old key"),
    "added": gettext_lazy("added"),
    "new": gettext_lazy("new"),
    "refused": gettext_lazy("refused"),
    "lines": gettext_lazy("lines"),
}
_MOST_COUNTS: Final = 6


@dataclass(frozen=True, slots=True)
class OperationLine:
    """Operation on a frontier's seeds, as the frontier's page lists it: kind, state, progress."""

    operation: Operation
    about: str
    told: str
    is_active: bool
    is_silent: bool

    @property
    def tone(self) -> str:
        """Return the badge colour of the state."""
        return TONES[OperationState(self.operation.state)]

    @property
    def percent(self) -> float | None:
        """Progress in percent; None when unknown."""
        total = self.operation.total
        if not total:
            return 100.0 if self.operation.state == OperationState.DONE else None
        return min(100.0, 100.0 * self.operation.done / total)


def lines_of(frontier: Frontier, now: datetime) -> list[OperationLine]:
    """Return the active and the latest operations of a frontier. One query."""
    rows = list(Operation.objects.filter(frontier=frontier)[: SHOWN * 3])
    kept = [
        row for place, row in enumerate(rows) if place < SHOWN or row.state in ACTIVE_OPERATIONS
    ]
    return [line_of(row, frontier, now) for row in kept]


def line_of(row: Operation, frontier: Frontier, now: datetime) -> OperationLine:
    """Convert an operation to a table row."""
    active = row.state in ACTIVE_OPERATIONS
    sign = row.beat_at or row.started_at or row.created_at
    return OperationLine(
        operation=row,
        about=about(row, frontier),
        told=told(row.result),
        is_active=active,
        is_silent=active and (now - sign).total_seconds() > SILENT_SECONDS,
    )


def about(row: Operation, frontier: Frontier) -> str:
    """Return the subject of an operation: a segment, the new rules or a file name."""
    arguments = row.arguments if isinstance(row.arguments, dict) else {}
    for name in ("segment", "source"):
        segment = arguments.get(name)
        if isinstance(segment, int):
            return begins(segment, zone_of(frontier.time_zone))
    if row.kind == OperationKind.MOVE:
        rules = arguments.get("grouping")
        return rules_text(rules) if isinstance(rules, dict) else ""
    file = arguments.get("name") or arguments.get("file")
    return file if isinstance(file, str) else ""


def rules_text(rules: Mapping[str, Any]) -> str:
    """Return segments, time zone and keys in one line."""
    parts = [granularity_of(str(rules.get("segments", ""))), rules.get("time_zone")]
    parts.append(rules.get("keys"))
    return ", ".join(part for part in parts if isinstance(part, str) and part)


def told(result: Any) -> str:
    """Return the counters of an operation as text."""
    if not isinstance(result, dict):
        return ""
    parts = []
    for name, number in result.items():
        if isinstance(number, bool) or not isinstance(number, int):
            continue
        label = _COUNTS.get(str(name), str(name))
        parts.append(_("%(what)s %(count)s") % {"what": label, "count": f"{number:,}"})
    return " · ".join(parts[:_MOST_COUNTS])
