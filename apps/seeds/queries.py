"""Queries for pages of frontiers. They read stored reports and never call the seed service."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Final

from django.db.models import F, Max, Min, Q, Sum

from apps.access.models import User
from apps.runtime.models import Daemon
from apps.runtime.queries import is_live
from apps.seeds.models import Frontier, SegmentReport

# Kind of ``run_seeds`` in the table of processes.
KIND: Final = "seeds"
SHOWN_NAMES: Final = 5


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums of a frontier's segment counts; 0 before the first report."""

    added: int = 0
    duplicates: int = 0
    pending: int = 0
    leased: int = 0
    succeeded: int = 0
    failed: int = 0
    ignored: int = 0
    forgotten: int = 0
    retried: int = 0
    expired: int = 0
    late: int = 0
    size_bytes: int = 0

    @property
    def placed(self) -> int:
        """Return the number of seeds in any state; equal to ``added`` when the counts are
        consistent.
        """
        return self.pending + self.leased + self.ended

    @property
    def ended(self) -> int:
        """Seeds in a final state."""
        return self.succeeded + self.failed + self.ignored + self.forgotten

    @property
    def balances(self) -> bool:
        """Return whether the counts by state add up to the seeds added."""
        return self.added == self.placed


_SUMS: Final = {counter.name: Sum(counter.name, default=0) for counter in fields(Totals)}


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """Whether the seed service is running, and its latest heartbeat; None: never seen."""

    alive: bool
    heard_at: datetime | None


def service_status(now: datetime) -> ServiceStatus:
    """Return the state of the seed service. One query."""
    daemons = list(Daemon.objects.filter(kind=KIND))
    return ServiceStatus(
        alive=any(is_live(daemon, now=now) for daemon in daemons),
        heard_at=max((daemon.beat_at for daemon in daemons), default=None),
    )


def totals_of(frontiers: Iterable[int]) -> dict[int, Totals]:
    """Return the counts of each frontier. One query."""
    wanted = list(frontiers)
    rows = SegmentReport.objects.filter(frontier__in=wanted).order_by()
    sums = {f"all_{name}": total for name, total in _SUMS.items()}
    sums_by_frontier = rows.values("frontier").annotate(**sums).values_list("frontier", *sums)
    known = {pk: Totals(*counts) for pk, *counts in sums_by_frontier}
    return {pk: known.get(pk, Totals()) for pk in wanted}


def last_report(frontier: Frontier) -> datetime | None:
    """Return when the seed service last reported a change of the frontier."""
    newest = SegmentReport.objects.filter(frontier=frontier).aggregate(at=Max("reported_at"))
    at: datetime | None = newest["at"]
    return at


def oldest_pending() -> Min:
    """Aggregate for frontiers: the beginning (ms) of the first segment with pending seeds."""
    return Min("reports__segment", filter=Q(reports__pending__gt=0))


@dataclass(frozen=True, slots=True)
class SeedsHome:
    """Line of frontiers on the home page."""

    frontiers: int
    totals: Totals
    # Names of a few frontiers with inconsistent counts.
    unbalanced: list[Frontier]
    service: ServiceStatus

    @property
    def needs_a_person(self) -> bool:
        """Return whether pending seeds have no running service, or counts are inconsistent."""
        return not self.service.alive or bool(self.unbalanced)


def seeds_home(user: User, now: datetime) -> SeedsHome | None:
    """Sum up the frontiers visible to the user; None if there are none. Four queries."""
    visible = Frontier.objects.visible_to(user)
    count = visible.count()
    if not count:
        return None
    reports = SegmentReport.objects.visible_to(user)
    ended = F("succeeded") + F("failed") + F("ignored") + F("forgotten")
    wrong = reports.exclude(added=F("pending") + F("leased") + ended).values("frontier")
    return SeedsHome(
        frontiers=count,
        totals=Totals(**reports.aggregate(**_SUMS)),
        unbalanced=list(visible.filter(pk__in=wrong)[:SHOWN_NAMES]),
        service=service_status(now),
    )
