"""Figures of jobs and projects over some days, from their daily sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from django.db.models import F, QuerySet, Sum

from apps.access.models import User
from apps.jobs.models import Job
from apps.queuestats.models import FailedRequest, JobDay

PERIODS: Final = (1, 7, 30, 90)
SHOWN_JOBS: Final = 10
SHOWN_FAILING: Final = 5
# Failed requests that are read to find failing hosts: the newest ones.
READ_FAILURES: Final = 2_000
_SUMMED: Final = (
    "success",
    "failed",
    "items",
    "bytes_received",
    "runs_succeeded",
    "runs_with_errors",
    "runs_failed",
    "runs_cancelled",
    "run_seconds",
)


@dataclass(frozen=True, slots=True)
class Figures:
    """Sums over some days; ``name`` and ``pk`` are those of a job or project."""

    success: int = 0
    failed: int = 0
    items: int = 0
    bytes_received: int = 0
    runs_succeeded: int = 0
    runs_with_errors: int = 0
    runs_failed: int = 0
    runs_cancelled: int = 0
    run_seconds: int = 0
    pk: int = 0
    name: str = ""
    project: str = ""
    day: date | None = None

    @property
    def runs(self) -> int:
        """Ended runs."""
        return self.judged + self.runs_cancelled

    @property
    def judged(self) -> int:
        """Ended runs that nobody has cancelled."""
        return self.runs_succeeded + self.runs_with_errors + self.runs_failed

    @property
    def requests(self) -> int:
        """Ended requests."""
        return self.success + self.failed

    @property
    def success_percent(self) -> float | None:
        """Succeeded runs in percent of those not cancelled; None without any."""
        return 100.0 * self.runs_succeeded / self.judged if self.judged else None

    @property
    def mean_seconds(self) -> float | None:
        """Average duration of a run; None without any."""
        return self.run_seconds / self.runs if self.runs else None


@dataclass(frozen=True, slots=True)
class FailingHost:
    """A site and its share of the newest failed requests."""

    host: str
    failures: int


@dataclass(frozen=True, slots=True)
class Period:
    """Figures of the last ``days`` days, today included, and of as many days before them."""

    days: int
    total: Figures
    before: Figures
    by_day: list[Figures]
    by_job: list[Figures] = field(default_factory=list)
    by_project: list[Figures] = field(default_factory=list)
    failing: list[Figures] = field(default_factory=list)
    hosts: list[FailingHost] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was counted in these days."""
        return not (self.total.runs or self.total.items or self.total.success or self.total.failed)


def period_of(user: User, *, days: int, now: datetime) -> Period:
    """Return the figures of all jobs that a user sees. Five queries."""
    rows = JobDay.objects.visible_to(user).order_by()
    today = now.astimezone(UTC).date()
    recent = rows.filter(day__gt=today - timedelta(days=days))
    jobs = recent.values("job", "job__name", "job__project__name")
    return Period(
        days=days,
        **_days(rows, days, today),
        by_job=_listed(_summed(jobs).order_by("-items", "-success", "job")[:SHOWN_JOBS]),
        by_project=_listed(
            _summed(recent.values("job__project", "job__project__name")).order_by(
                "-items", "-success", "job__project"
            )[:SHOWN_JOBS]
        ),
        failing=_listed(
            _summed(jobs)
            .annotate(bad=F("runs_failed") + F("runs_with_errors"))
            .filter(bad__gt=0)
            .order_by("-bad", "job")[:SHOWN_FAILING]
        ),
        hosts=_failing_hosts(user, now - timedelta(days=days)),
    )


def job_period(job: Job, *, days: int, now: datetime) -> Period:
    """Return the figures of one job. One query."""
    rows = JobDay.objects.filter(job=job).order_by()
    return Period(days=days, **_days(rows, days, now.astimezone(UTC).date()))


def _summed(rows: QuerySet[Any, Any]) -> Any:
    return rows.annotate(**{name: Sum(name) for name in _SUMMED})


def _days(rows: QuerySet[Any, Any], days: int, today: date) -> dict[str, Any]:
    since = today - timedelta(days=2 * days - 1)
    found = {
        row["day"]: row for row in _summed(rows.filter(day__gte=since).values("day")) if row["day"]
    }
    all_days = [since + timedelta(days=number) for number in range(2 * days)]
    figures = [Figures(**{**found.get(day, {}), "day": day}) for day in all_days]
    earlier, by_day = figures[:days], figures[days:]
    return {"total": _total(by_day), "before": _total(earlier), "by_day": by_day}


def _total(days: Sequence[Figures]) -> Figures:
    return Figures(**{name: sum(getattr(day, name) for day in days) for name in _SUMMED})


def _listed(rows: QuerySet[Any, Any]) -> list[Figures]:
    return [
        Figures(
            **{name: row[name] for name in _SUMMED},
            pk=row.get("job", row.get("job__project")),
            name=row.get("job__name", row["job__project__name"]),
            project=row["job__project__name"],
        )
        for row in rows
    ]


def _failing_hosts(user: User, since: datetime) -> list[FailingHost]:
    newest = FailedRequest.objects.visible_to(user).order_by("-id").values_list("url", "at")
    hosts = Counter(_host(url) for url, at in newest[:READ_FAILURES] if at >= since)
    return [FailingHost(host, count) for host, count in hosts.most_common(SHOWN_FAILING) if host]


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
