"""What living routers say of a project's inbounds and outbounds, put together."""

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
from apps.routing.texts import RULES, told

# A report is written about every 2 s: an older one is of a router that hangs or is gone.
YOUNG: Final = timedelta(seconds=15)


class _Troubled(Protocol):
    @property
    def problem(self) -> str: ...
    @property
    def problem_at_ms(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Router:
    """One living router."""

    name: str
    rules_version: int
    at: datetime


@dataclass(frozen=True, slots=True)
class InboundStanding:
    """One inbound as all living routers see it; what is counted is counted since their start."""

    problem: str = ""
    problem_since: datetime | None = None
    # How many routers have the problem.
    troubled: int = 0
    depth: int | None = None
    taken: int = 0
    filtered: int = 0
    poison: int = 0
    late: int = 0
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OutboundStanding:
    """One outbound as all living routers see it."""

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
class Standing:
    """Everything that living routers say of one project."""

    routers: tuple[Router, ...] = ()
    inbounds: dict[str, InboundStanding] = field(default_factory=dict)
    outbounds: dict[str, OutboundStanding] = field(default_factory=dict)
    # Why some router cannot write the failure file, and since when.
    file_problem: str = ""
    file_problem_since: datetime | None = None
    # When any router, living or gone, last said something; None: never.
    last_at: datetime | None = None


def standing(project: int, now: datetime) -> Standing:
    """What routers say of the project, those apart that have been silent for 15 s. One query."""
    rows = list(RouterReport.objects.filter(project=project).order_by("router"))
    young = [row for row in rows if row.at > now - YOUNG]
    reports = [_read(row.reports) for row in young]
    inbounds = sorted({name for each in reports for name in each.inbounds})
    outbounds = sorted(
        {name for each in reports for name in (*each.outbounds, *each.selector_errors)}
    )
    file_problem, file_since, _routers = _trouble(each.failure_file for each in reports)
    return Standing(
        routers=tuple(Router(row.router, row.rules_version, row.at) for row in young),
        inbounds={
            name: _inbound([each.inbounds[name] for each in reports if name in each.inbounds])
            for name in inbounds
        },
        outbounds={
            name: _outbound(
                [each.outbounds[name] for each in reports if name in each.outbounds],
                sum(each.selector_errors.get(name, 0) for each in reports),
            )
            for name in outbounds
        },
        file_problem=file_problem,
        file_problem_since=file_since,
        last_at=max((row.at for row in rows), default=None),
    )


@dataclass(frozen=True, slots=True)
class ProjectTrouble:
    """A project whose inbounds, outbounds or failure file have a problem: their names, and the
    first problem."""

    project: Project
    names: tuple[str, ...]
    problem: str


def projects_in_trouble(user: User, now: datetime) -> list[ProjectTrouble]:
    """The projects of ``user`` where living routers have a problem, by name. One query."""
    rows = RouterReport.objects.filter(
        project__in=Project.objects.visible_to(user), at__gt=now - YOUNG
    ).select_related("project")
    projects: dict[Project, dict[str, str]] = {}
    for row in rows.order_by("project__name", "router"):
        said = _read(row.reports)
        lines: list[tuple[str, _Troubled]] = [
            *said.inbounds.items(),
            *said.outbounds.items(),
            (gettext("failure file"), said.failure_file),
        ]
        for name, line in lines:
            if line.problem:
                projects.setdefault(row.project, {}).setdefault(name, line.problem)
    return [
        ProjectTrouble(project, tuple(problems), next(iter(problems.values())))
        for project, problems in projects.items()
    ]


def _read(data: object) -> Reports:
    try:
        return msgspec.convert(data, Reports)
    except msgspec.ValidationError:
        # Of a router of another release: it lives, and says nothing that is understood here.
        return Reports()


def _inbound(found: list[InboundReport]) -> InboundStanding:
    problem, since, troubled = _trouble(found)
    return InboundStanding(
        problem=problem,
        problem_since=since,
        troubled=troubled,
        depth=_depth(each.depth for each in found),
        taken=sum(each.taken for each in found),
        filtered=sum(each.filtered for each in found),
        poison=sum(each.poison for each in found),
        late=sum(each.late for each in found),
        warnings=tuple(dict.fromkeys(told(RULES, *one) for each in found for one in each.findings)),
    )


def _outbound(found: list[OutboundReport], selector_errors: int) -> OutboundStanding:
    problem, since, troubled = _trouble(found)
    return OutboundStanding(
        problem=problem,
        problem_since=since,
        troubled=troubled,
        depth=_depth(each.depth for each in found),
        full=any(each.full for each in found),
        sent=sum(each.sent for each in found),
        refused=sum(each.refused for each in found),
        limit_degraded=next((each.limit_degraded for each in found if each.limit_degraded), ""),
        selector_errors=selector_errors,
    )


def _trouble(found: Iterable[_Troubled]) -> tuple[str, datetime | None, int]:
    """The problem that has lasted longest, since when, and how many routers have one."""
    troubled = sorted((each for each in found if each.problem), key=lambda each: each.problem_at_ms)
    if not troubled:
        return "", None, 0
    since = datetime.fromtimestamp(troubled[0].problem_at_ms / 1000, UTC)
    return troubled[0].problem, since, len(troubled)


def _depth(depths: Iterable[int | None]) -> int | None:
    """All routers look at the same queue, at moments that differ a little."""
    return max((depth for depth in depths if depth is not None), default=None)
