"""Status of a project's inbounds and outbounds, merged from the reports of its live routers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

import msgspec
from django.utils.translation import gettext

from apps.access.models import User
from apps.projects.models import Project
from apps.routing.engine.reports import InboundReport, OutboundReport, Reports
from apps.routing.models import RouterReport
from apps.routing.texts import RULES, translated

# A router reports about every 2 s; after this time without a report it hangs or has stopped.
REPORT_MAX_AGE: Final = timedelta(seconds=15)


class _Reported(Protocol):
    @property
    def problem(self) -> str: ...
    @property
    def problem_at_ms(self) -> int: ...


@dataclass(frozen=True, slots=True)
class LiveRouter:
    """A router with a recent report."""

    name: str
    rules_version: int
    at: datetime


@dataclass(frozen=True, slots=True)
class InboundStatus:
    """Status of an inbound over all live routers; counters run since the start of each router."""

    problem: str = ""
    problem_since: datetime | None = None
    # Number of routers with a problem.
    troubled: int = 0
    depth: int | None = None
    taken: int = 0
    filtered: int = 0
    poison: int = 0
    late: int = 0
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OutboundStatus:
    """Status of an outbound over all live routers; counters run since the start of each router."""

    problem: str = ""
    problem_since: datetime | None = None
    troubled: int = 0
    depth: int | None = None
    full: bool = False
    sent: int = 0
    refused: int = 0
    limit_degraded: str = ""
    selector_errors: int = 0


@dataclass(frozen=True, slots=True)
class RoutingStatus:
    """Status of a project's routing over all live routers."""

    routers: tuple[LiveRouter, ...] = ()
    inbounds: dict[str, InboundStatus] = field(default_factory=dict)
    outbounds: dict[str, OutboundStatus] = field(default_factory=dict)
    # Error of a router that cannot write the failure file, and its start.
    file_problem: str = ""
    file_problem_since: datetime | None = None
    # Time of the last report of any router, live or stopped; None: never.
    last_at: datetime | None = None


def routing_status(project: int, now: datetime) -> RoutingStatus:
    """Return the status of a project, from routers that reported within 15 s. One query."""
    rows = list(RouterReport.objects.filter(project=project).order_by("router"))
    recent = [row for row in rows if row.at > now - REPORT_MAX_AGE]
    reports = [_read(row.reports) for row in recent]
    inbounds = sorted({name for report in reports for name in report.inbounds})
    outbounds = sorted(
        {name for report in reports for name in (*report.outbounds, *report.selector_errors)}
    )
    file_problem, file_since, _routers = _problem(report.failure_file for report in reports)
    return RoutingStatus(
        routers=tuple(LiveRouter(row.router, row.rules_version, row.at) for row in recent),
        inbounds={
            name: _inbound([report.inbounds[name] for report in reports if name in report.inbounds])
            for name in inbounds
        },
        outbounds={
            name: _outbound(
                [report.outbounds[name] for report in reports if name in report.outbounds],
                sum(report.selector_errors.get(name, 0) for report in reports),
            )
            for name in outbounds
        },
        file_problem=file_problem,
        file_problem_since=file_since,
        last_at=max((row.at for row in rows), default=None),
    )


@dataclass(frozen=True, slots=True)
class ProjectProblems:
    """A project with a problem: names of the inbounds, outbounds or failure file, first problem."""

    project: Project
    names: tuple[str, ...]
    problem: str


def projects_with_problems(user: User, now: datetime) -> list[ProjectProblems]:
    """Return the user's projects for which live routers report a problem, by name. One query."""
    rows = RouterReport.objects.filter(
        project__in=Project.objects.visible_to(user), at__gt=now - REPORT_MAX_AGE
    ).select_related("project")
    projects: dict[Project, dict[str, str]] = {}
    for row in rows.order_by("project__name", "router"):
        report = _read(row.reports)
        parts: list[tuple[str, _Reported]] = [
            *report.inbounds.items(),
            *report.outbounds.items(),
            (gettext("failure file"), report.failure_file),
        ]
        for name, part in parts:
            if part.problem:
                projects.setdefault(row.project, {}).setdefault(name, part.problem)
    return [
        ProjectProblems(project, tuple(problems), next(iter(problems.values())))
        for project, problems in projects.items()
    ]


def _read(data: object) -> Reports:
    try:
        return msgspec.convert(data, Reports)
    except msgspec.ValidationError:
        # Written by another release: the router counts as live, with an empty report.
        return Reports()


def _inbound(reports: list[InboundReport]) -> InboundStatus:
    problem, since, troubled = _problem(reports)
    return InboundStatus(
        problem=problem,
        problem_since=since,
        troubled=troubled,
        depth=_depth(report.depth for report in reports),
        taken=sum(report.taken for report in reports),
        filtered=sum(report.filtered for report in reports),
        poison=sum(report.poison for report in reports),
        late=sum(report.late for report in reports),
        warnings=tuple(
            dict.fromkeys(
                translated(RULES, *finding) for report in reports for finding in report.findings
            )
        ),
    )


def _outbound(reports: list[OutboundReport], selector_errors: int) -> OutboundStatus:
    problem, since, troubled = _problem(reports)
    return OutboundStatus(
        problem=problem,
        problem_since=since,
        troubled=troubled,
        depth=_depth(report.depth for report in reports),
        full=any(report.full for report in reports),
        sent=sum(report.sent for report in reports),
        refused=sum(report.refused for report in reports),
        limit_degraded=next(
            (report.limit_degraded for report in reports if report.limit_degraded), ""
        ),
        selector_errors=selector_errors,
    )


def _problem(parts: Iterable[_Reported]) -> tuple[str, datetime | None, int]:
    """Return the oldest problem, its start, and the number of routers with a problem."""
    troubled = sorted((part for part in parts if part.problem), key=lambda p: p.problem_at_ms)
    if not troubled:
        return "", None, 0
    since = datetime.fromtimestamp(troubled[0].problem_at_ms / 1000, UTC)
    return troubled[0].problem, since, len(troubled)


def _depth(depths: Iterable[int | None]) -> int | None:
    """Return the largest depth: all routers see the same queue, at slightly different times."""
    return max((depth for depth in depths if depth is not None), default=None)
