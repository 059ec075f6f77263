"""Totals of runs and centers, summed from their counter reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from apps.queuestats.models import CenterCounter, PageCounter, RunCounter

REQUESTS = ("total", "success", "failed", "queued", "in_flight")
ATTEMPTS = (
    "sent",
    "retried",
    "returned",
    "skipped",
    "timed_out",
    "refused",
    "cancelled",
    "out",
    "held",
)
OTHERS = ("duplicates", "filtered", "pages", "items", "bytes_received", "callback_ms")
BY_AGENT = ("agents", "agent_failed", "agent_ms")
SUMMED = (*REQUESTS, *ATTEMPTS, *OTHERS)
CENTER_SUMMED = ("received", "dispatched", "skipped", "expired", "refused", "held")


@dataclass(frozen=True, slots=True)
class CenterTotals:
    """Counters of a run's requests at the centers, summed over all centers."""

    received: int = 0
    dispatched: int = 0
    skipped: int = 0
    expired: int = 0
    refused: int = 0
    held: int = 0
    reported: bool = False

    @property
    def balanced(self) -> bool:
        """Whether received = dispatched + skipped + expired + refused + held."""
        ended = self.dispatched + self.skipped + self.expired + self.refused
        return self.received == ended + self.held and self.held >= 0

    def as_dict(self) -> dict[str, object]:
        """Return the values for REST and websockets."""
        return asdict(self) | {"balanced": self.balanced}


@dataclass(frozen=True, slots=True)
class RunTotals:
    """Counters of a run's requests and attempts, summed over its executions.

    Each execution counts from 0. Of an execution that was replaced by a restart only finished
    requests count, because the next execution repeats the others; its attempts in flight count as
    cancelled.
    """

    total: int = 0
    success: int = 0
    failed: int = 0
    queued: int = 0
    in_flight: int = 0
    sent: int = 0
    retried: int = 0
    returned: int = 0
    skipped: int = 0
    timed_out: int = 0
    refused: int = 0
    cancelled: int = 0
    out: int = 0
    held: int = 0
    duplicates: int = 0
    filtered: int = 0
    pages: int = 0
    items: int = 0
    bytes_received: int = 0
    callback_ms: int = 0
    agents: dict[str, int] = field(default_factory=dict)
    agent_failed: dict[str, int] = field(default_factory=dict)
    agent_ms: dict[str, int] = field(default_factory=dict)
    # By item field: number of items in which it had a value.
    fields: dict[str, int] = field(default_factory=dict)
    # By reason: items that the run gave up before it sent them.
    dropped: dict[str, int] = field(default_factory=dict)
    reported: bool = False
    final: bool = False

    @property
    def left(self) -> int:
        """Pending requests: total - success - failed."""
        return self.total - self.success - self.failed

    @property
    def requests_balanced(self) -> bool:
        """Whether each request is in exactly one state: succeeded, failed, queued or in flight."""
        return self.left == self.queued + self.in_flight and self.left >= 0

    @property
    def attempts_balanced(self) -> bool:
        """Whether each attempt is answered, abandoned for one of four reasons, or in flight."""
        abandoned = self.skipped + self.timed_out + self.refused + self.cancelled
        attempts = self.sent + self.retried
        return attempts == self.returned + abandoned + self.out and 0 <= self.held <= self.out

    @property
    def balanced(self) -> bool:
        """Whether all requests and attempts are accounted for."""
        return self.requests_balanced and self.attempts_balanced

    @property
    def undone(self) -> int:
        """Requests that were still pending when the run ended."""
        return self.left if self.final else 0

    @property
    def done(self) -> int:
        """Finished requests, succeeded or failed."""
        return self.success + self.failed

    @property
    def success_percent(self) -> float:
        """Succeeded requests in percent of the total; 0 without requests."""
        return 100.0 * self.success / self.total if self.total > 0 else 0.0

    @property
    def failed_percent(self) -> float:
        """Failed requests in percent of the total; 0 without requests."""
        return 100.0 * self.failed / self.total if self.total > 0 else 0.0

    @property
    def mean_download_ms(self) -> float | None:
        """Average download time in ms, measured by the agents; None if unknown."""
        responses = sum(self.agents.values())
        return sum(self.agent_ms.values()) / responses if responses and self.agent_ms else None

    @property
    def mean_callback_ms(self) -> float | None:
        """Average time in ms that the spider's callbacks took for a page; None if unknown."""
        return self.callback_ms / self.success if self.success and self.callback_ms else None

    def as_dict(self) -> dict[str, object]:
        """Return the values for REST and websockets; ``fields`` is too large for events."""
        values: dict[str, object] = {name: getattr(self, name) for name in SUMMED}
        return values | {
            "left": self.left,
            "undone": self.undone,
            **{name: getattr(self, name) for name in BY_AGENT},
            "mean_download_ms": self.mean_download_ms,
            "mean_callback_ms": self.mean_callback_ms,
            "requests_balanced": self.requests_balanced,
            "attempts_balanced": self.attempts_balanced,
            "balanced": self.balanced,
            "final": self.final,
        }


def run_totals(owners: Iterable[str]) -> dict[str, RunTotals]:
    """Return totals by owner; zeros for an owner without reports. One query."""
    owners = list(owners)
    rows: dict[str, list[RunCounter]] = {owner: [] for owner in owners}
    for row in RunCounter.objects.filter(owner__in=owners).order_by("id"):
        rows[row.owner].append(row)
    return {owner: sum_of(counters) for owner, counters in rows.items()}


def sum_of(rows: Sequence[RunCounter]) -> RunTotals:
    """Sum the executions of one run, oldest first."""
    if not rows:
        return RunTotals()
    by_key: dict[str, Counter[str]] = {name: Counter() for name in (*BY_AGENT, "fields", "dropped")}
    for row in rows:
        for name, counter in by_key.items():
            # None in rows written by an older version.
            counter.update(getattr(row, name))
    sums = {name: sum(getattr(row, name) for row in rows) for name in SUMMED}
    sums["cancelled"] += sums["out"] - rows[-1].out
    sums["total"] -= sum(row.total - row.success - row.failed for row in rows[:-1])
    for name in ("queued", "in_flight", "out", "held"):
        sums[name] = getattr(rows[-1], name)
    values: dict[str, Any] = {name: dict(counter) for name, counter in by_key.items()}
    return RunTotals(**sums, **values, reported=True, final=rows[-1].final)


def center_totals(owners: Iterable[str]) -> dict[str, CenterTotals]:
    """Return the centers' totals by owner; zeros for an owner without reports. One query."""
    sums = {owner: dict.fromkeys(CENTER_SUMMED, 0) for owner in owners}
    reported = set()
    for row in CenterCounter.objects.filter(owner__in=sums):
        reported.add(row.owner)
        for name in CENTER_SUMMED:
            sums[row.owner][name] += getattr(row, name)
    return {
        owner: CenterTotals(**values, reported=owner in reported) for owner, values in sums.items()
    }


def page_totals(owner: str) -> tuple[int, dict[str, int]]:
    """Return how many pages were to be kept, and by reason those that were not.

    ``owner``: ``run:7``, or ``dataset:12`` for the pages of a request group.
    """
    chosen, not_kept = 0, Counter[str]()
    for row in PageCounter.objects.filter(owner=owner):
        chosen += row.chosen
        not_kept.update(row.not_kept)
    return chosen, dict(not_kept)
