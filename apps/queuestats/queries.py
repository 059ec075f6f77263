"""The books of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from apps.queuestats.models import CenterCounter, RunCounter

SUMMED = (
    "total",
    "success",
    "failed",
    "sent",
    "returned",
    "retried",
    "skipped",
    "duplicates",
    "pages",
    "items",
    "bytes_received",
    "queued",
    "in_flight",
)
CENTER_SUMMED = ("received", "dispatched", "skipped", "expired")


@dataclass(frozen=True, slots=True)
class RunBooks:
    """What became of a run's requests, summed over its executions."""

    total: int = 0
    success: int = 0
    failed: int = 0
    sent: int = 0
    returned: int = 0
    retried: int = 0
    skipped: int = 0
    duplicates: int = 0
    pages: int = 0
    items: int = 0
    bytes_received: int = 0
    queued: int = 0
    in_flight: int = 0
    agents: dict[str, int] = field(default_factory=dict)
    reported: bool = False
    final: bool = False

    @property
    def left(self) -> int:
        """Total minus success minus failed (seed S1.19)."""
        return self.total - self.success - self.failed

    @property
    def balanced(self) -> bool:
        """Every request is in exactly one place: done, failed, waiting or on its way."""
        return self.left == self.queued + self.in_flight and self.left >= 0

    @property
    def cancelled(self) -> int:
        """Requests that nobody will make any more: the run ended before their turn."""
        return self.left if self.final else 0

    @property
    def done(self) -> int:
        """Requests that were made, one way or the other."""
        return self.success + self.failed

    @property
    def success_percent(self) -> float:
        """How much of what is known so far has succeeded."""
        return 100.0 * self.success / self.total if self.total > 0 else 0.0

    @property
    def failed_percent(self) -> float:
        """How much of what is known so far has failed for good."""
        return 100.0 * self.failed / self.total if self.total > 0 else 0.0

    def as_dict(self) -> dict[str, object]:
        """For REST and websockets."""
        values: dict[str, object] = {name: getattr(self, name) for name in SUMMED}
        return values | {
            "left": self.left,
            "cancelled": self.cancelled,
            "agents": self.agents,
            "balanced": self.balanced,
            "final": self.final,
        }


def books_of(owners: Iterable[str]) -> dict[str, RunBooks]:
    """The books by owner; an owner that has not reported yet has empty ones. One query."""
    owners = list(owners)
    rows: dict[str, list[RunCounter]] = {owner: [] for owner in owners}
    for row in RunCounter.objects.filter(owner__in=owners).order_by("id"):
        rows[row.owner].append(row)
    return {owner: _sum(counters) for owner, counters in rows.items()}


def _sum(rows: list[RunCounter]) -> RunBooks:
    if not rows:
        return RunBooks()
    agents: Counter[str] = Counter()
    for row in rows:
        agents.update(row.agents)
    return RunBooks(
        **{name: sum(getattr(row, name) for row in rows) for name in SUMMED},
        agents=dict(agents),
        reported=True,
        final=rows[-1].final,
    )


def center_sums(owner: str) -> dict[str, int]:
    """What the centers did for an owner, summed over them."""
    sums = dict.fromkeys(CENTER_SUMMED, 0)
    for row in CenterCounter.objects.filter(owner=owner):
        for name in CENTER_SUMMED:
            sums[name] += getattr(row, name)
    return sums
