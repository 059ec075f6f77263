"""The totals of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from apps.queuestats.models import CenterCounter, RunCounter

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
OTHERS = ("duplicates", "pages", "items", "bytes_received", "callback_ms")
BY_AGENT = ("agents", "agent_failed", "agent_ms")
SUMMED = (*REQUESTS, *ATTEMPTS, *OTHERS)
CENTER_SUMMED = ("received", "dispatched", "skipped", "expired", "refused", "held")


@dataclass(frozen=True, slots=True)
class CenterTotals:
    """What the centers did with a run's requests, summed over all that served it."""

    received: int = 0
    dispatched: int = 0
    skipped: int = 0
    expired: int = 0
    refused: int = 0
    held: int = 0
    reported: bool = False

    @property
    def balanced(self) -> bool:
        """received = dispatched + skipped + expired + refused + held."""
        ended = self.dispatched + self.skipped + self.expired + self.refused
        return self.received == ended + self.held and self.held >= 0

    def as_dict(self) -> dict[str, object]:
        """For REST and websockets."""
        return asdict(self) | {"balanced": self.balanced}


@dataclass(frozen=True, slots=True)
class RunTotals:
    """What became of a run's requests and of every attempt at them.

    Summed over its executions: each counts from 0. An execution that a later one has replaced adds
    only requests it has done: the later one makes the others again. Its attempts that were out
    count as cancelled.
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
    pages: int = 0
    items: int = 0
    bytes_received: int = 0
    callback_ms: int = 0
    agents: dict[str, int] = field(default_factory=dict)
    agent_failed: dict[str, int] = field(default_factory=dict)
    agent_ms: dict[str, int] = field(default_factory=dict)
    # In how many of the items each field had a value.
    fields: dict[str, int] = field(default_factory=dict)
    reported: bool = False
    final: bool = False

    @property
    def left(self) -> int:
        """Total minus success minus failed (seed S1.19)."""
        return self.total - self.success - self.failed

    @property
    def requests_balanced(self) -> bool:
        """Every request is in exactly one place: done, failed, waiting or on its way."""
        return self.left == self.queued + self.in_flight and self.left >= 0

    @property
    def attempts_balanced(self) -> bool:
        """Every attempt is: answered, given up for one of four reasons, or still out."""
        given_up = self.skipped + self.timed_out + self.refused + self.cancelled
        begun = self.sent + self.retried
        return begun == self.returned + given_up + self.out and 0 <= self.held <= self.out

    @property
    def balanced(self) -> bool:
        """Both equations hold."""
        return self.requests_balanced and self.attempts_balanced

    @property
    def undone(self) -> int:
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

    @property
    def mean_download_ms(self) -> float | None:
        """How long a download took on average, by the agents' own clocks (seed S1.57)."""
        answers = sum(self.agents.values())
        return sum(self.agent_ms.values()) / answers if answers and self.agent_ms else None

    @property
    def mean_callback_ms(self) -> float | None:
        """How long the spider took for a page on average."""
        return self.callback_ms / self.success if self.success and self.callback_ms else None

    def as_dict(self) -> dict[str, object]:
        """For REST and websockets; without ``fields``, too much for a page to be told often."""
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
    """The totals by owner; an owner that has not reported yet has empty ones. One query."""
    owners = list(owners)
    rows: dict[str, list[RunCounter]] = {owner: [] for owner in owners}
    for row in RunCounter.objects.filter(owner__in=owners).order_by("id"):
        rows[row.owner].append(row)
    return {owner: sum_of(counters) for owner, counters in rows.items()}


def sum_of(rows: Sequence[RunCounter]) -> RunTotals:
    """The totals that the executions of one run make, the first one first."""
    if not rows:
        return RunTotals()
    by_key: dict[str, Counter[str]] = {name: Counter() for name in (*BY_AGENT, "fields")}
    for row in rows:
        for name, counter in by_key.items():
            # None of what an older version has written.
            counter.update(getattr(row, name))
    sums = {name: sum(getattr(row, name) for row in rows) for name in SUMMED}
    sums["cancelled"] += sums["out"] - rows[-1].out
    sums["total"] -= sum(row.total - row.success - row.failed for row in rows[:-1])
    for name in ("queued", "in_flight", "out", "held"):
        sums[name] = getattr(rows[-1], name)
    values: dict[str, Any] = {name: dict(counter) for name, counter in by_key.items()}
    return RunTotals(**sums, **values, reported=True, final=rows[-1].final)


def center_totals(owners: Iterable[str]) -> dict[str, CenterTotals]:
    """What the centers did, by owner; for one they have not heard of, nothing. One query."""
    sums = {owner: dict.fromkeys(CENTER_SUMMED, 0) for owner in owners}
    reported = set()
    for row in CenterCounter.objects.filter(owner__in=sums):
        reported.add(row.owner)
        for name in CENTER_SUMMED:
            sums[row.owner][name] += getattr(row, name)
    return {
        owner: CenterTotals(**values, reported=owner in reported) for owner, values in sums.items()
    }
