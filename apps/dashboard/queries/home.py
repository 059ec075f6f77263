"""Data of the overview, in a fixed number of queries."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from django.db.models import IntegerField, QuerySet, Subquery, Value

from apps.access.models import User
from apps.agents.models import Agent
from apps.agents.queries import AgentView
from apps.alerts.models import Incident
from apps.alerts.queries import open_incidents
from apps.jobs.models import Job, PlannedRun, Run, Schedule
from apps.jobs.states import PlanOutcome, RunState
from apps.projects.models import Project
from apps.queuestats.queries import RunTotals, run_totals
from apps.routing.queries import ProjectProblems, projects_with_problems
from apps.runtime.models import Daemon, DeadLetter
from apps.runtime.queries import stale_daemons
from apps.runtime.states import DeadLetterState
from apps.seeds.models import Frontier
from apps.seeds.queries import SeedsHome, seeds_home

TROUBLE_FOR: Final = timedelta(hours=24)
SHOWN_RUNS: Final = 50
SHOWN_TROUBLES: Final = 10
SHOWN_ENDED: Final = 8
SHOWN_MISSED: Final = 5
# Limits of the lists of agents.
SHOWN_ALIVE: Final = 50
SHOWN_SILENT: Final = 10
# More are shown as "100 or more".
MAX_COUNTED: Final = 100
# Beat handles a due schedule within seconds.
OVERDUE_AFTER: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run with its totals, as a row of a table."""

    run: Run
    totals: RunTotals


@dataclass(frozen=True, slots=True)
class HomeView:
    """Content of the overview, without queues."""

    incidents: list[Incident] = field(default_factory=list)
    incident_count: int = 0
    troubles: list[Run] = field(default_factory=list)
    trouble_count: int = 0
    silent: list[AgentView] = field(default_factory=list)
    silent_count: int = 0
    late: list[Daemon] = field(default_factory=list)
    dead_letters: int = 0
    # Planned times of the last day marked missed, and schedules that are due and unhandled.
    missed: list[PlannedRun] = field(default_factory=list)
    missed_count: int = 0
    overdue: list[Schedule] = field(default_factory=list)
    # Queued for a long time without a host.
    stuck: list[Run] = field(default_factory=list)
    routing: list[ProjectProblems] = field(default_factory=list)
    active: list[RunRow] = field(default_factory=list)
    active_count: int = 0
    ended: list[RunRow] = field(default_factory=list)
    alive: list[AgentView] = field(default_factory=list)
    alive_count: int = 0
    has_jobs: bool = False
    # None without frontiers.
    seeds: SeedsHome | None = None

    @property
    def is_ok(self) -> bool:
        """Whether nothing needs attention."""
        return not (
            self.incidents
            or self.troubles
            or self.missed
            or self.overdue
            or self.stuck
            or self.silent
            or self.late
            or self.dead_letters
            or self.routing
            or (self.seeds is not None and self.seeds.needs_a_person)
        )


def home_view(user: User, now: datetime) -> HomeView:
    """Return the overview of ``user``: runs of visible projects, agents and processes.

    Seven queries, plus one each for missed times, overdue schedules and silent processes if there
    are any, and three for seeds.
    """
    incidents = open_incidents(user, limit=MAX_COUNTED)
    # Problems that a shown incident already reports are not repeated.
    shown = incidents[:SHOWN_TROUBLES]
    keys = {incident.key for incident in shown}
    questions = _querysets(user, now, shown, keys)
    counts = _counts(user, questions)
    runs = _runs(user, now, questions["troubles"])
    totals = run_totals(run.owner for run in (*runs["active"], *runs["ended"]))
    agents = _together(
        Agent.objects.all(),
        alive=questions["alive"][:SHOWN_ALIVE],
        silent=questions["silent"][:SHOWN_SILENT],
    )
    return HomeView(
        incidents=shown,
        incident_count=len(incidents),
        troubles=runs["troubles"],
        trouble_count=counts["troubles"],
        silent=_views(agents["silent"], alive=False),
        silent_count=counts["silent"],
        late=[d for d in questions["late"] if f"daemon:{d.kind}:{d.name}" not in keys]
        if counts["late"]
        else [],
        dead_letters=counts["dead_letters"],
        missed=list(questions["missed"][:SHOWN_MISSED]) if counts["missed"] else [],
        missed_count=counts["missed"],
        overdue=list(questions["overdue"][:SHOWN_MISSED]) if counts["overdue"] else [],
        stuck=runs["stuck"],
        routing=projects_with_problems(user, now),
        active=[RunRow(run, totals[run.owner]) for run in runs["active"]],
        active_count=counts["active"],
        ended=[RunRow(run, totals[run.owner]) for run in runs["ended"]],
        alive=_views(agents["alive"], alive=True),
        alive_count=counts["alive"],
        has_jobs=bool(counts["jobs"]),
        seeds=seeds_home(user, now) if counts["frontiers"] else None,
    )


def _querysets(
    user: User, now: datetime, shown: list[Incident], keys: set[str]
) -> dict[str, QuerySet[Any, Any]]:
    """Return unevaluated querysets of everything that is counted or listed."""
    runs = Run.objects.visible_to(user)
    return {
        "troubles": runs.filter(
            state__in=[RunState.FAILED, RunState.LOST], ended_at__gte=now - TROUBLE_FOR
        ).exclude(pk__in=_runs_of(shown)),
        "active": runs.active(),
        "jobs": Job.objects.visible_to(user),
        "silent": Agent.objects.in_service()
        .silent(now)
        .exclude(agent_id__in=[key[6:] for key in keys if key.startswith("agent:")]),
        "alive": Agent.objects.alive(now),
        # By the database's clock, which also wrote the heartbeats.
        "late": stale_daemons(),
        "dead_letters": _dead_letters(user),
        "missed": _missed(user, now),
        "overdue": _overdue(user, now),
        "frontiers": Frontier.objects.visible_to(user),
    }


def _runs(user: User, now: datetime, troubles: QuerySet[Run, Run]) -> dict[str, list[Run]]:
    """Return the runs of each list, ordered. One query."""
    visible = Run.objects.visible_to(user)
    runs = _together(
        Run.objects.select_related("job__project"),
        active=visible.active().order_by("-id")[:SHOWN_RUNS],
        ended=visible.ended().order_by("-ended_at")[:SHOWN_ENDED],
        troubles=troubles.order_by("-ended_at")[:SHOWN_TROUBLES],
        stuck=visible.untaken(now)[:SHOWN_TROUBLES],
    )
    runs["active"].sort(key=lambda run: run.pk, reverse=True)
    runs["ended"].sort(key=lambda run: run.ended_at, reverse=True)
    runs["troubles"].sort(key=lambda run: run.ended_at, reverse=True)
    runs["stuck"].sort(key=lambda run: run.pk)
    return runs


class _CountOf(Subquery):
    """Number of rows of a queryset, as a column of another query."""

    template = "(SELECT COUNT(*) FROM (%(subquery)s) counted)"
    output_field = IntegerField()


def _counts(user: User, questions: dict[str, QuerySet[Any, Any]]) -> dict[str, int]:
    """Return the number of rows of each queryset, in one query (of the user's own row)."""
    columns = [_CountOf(rows.order_by().values("pk")) for rows in questions.values()]
    counts = User.objects.filter(pk=user.pk).values_list(*columns).get()
    # Django returns None for a queryset that it knows to be empty.
    return {name: number or 0 for name, number in zip(questions, counts, strict=True)}


def _together(rows: QuerySet[Any, Any], **parts: QuerySet[Any, Any]) -> dict[str, list[Any]]:
    """Return the unordered rows of several short querysets of one model. One query."""
    arms = [
        rows.order_by().filter(pk__in=part.values("pk")).annotate(part=Value(name))
        for name, part in parts.items()
    ]
    rows_by_part: dict[str, list[Any]] = {name: [] for name in parts}
    for row in arms[0].union(*arms[1:], all=True):
        rows_by_part[row.part].append(row)
    return rows_by_part


def _runs_of(incidents: list[Incident]) -> list[int]:
    """Return the runs of incidents about failed and lost runs."""
    return [
        incident.facts["run"]
        for incident in incidents
        if incident.source in ("run.failed", "run.lost")
        and isinstance(incident.facts.get("run"), int)
    ]


def _views(agents: list[Agent], *, alive: bool) -> list[AgentView]:
    return [
        AgentView(agent, alive)
        for agent in sorted(agents, key=lambda agent: (agent.name, agent.agent_id))
    ]


def _missed(user: User, now: datetime) -> QuerySet[PlannedRun]:
    """Select planned times of the last day that were missed, newest first."""
    rows = PlannedRun.objects.visible_to(user).filter(
        outcome=PlanOutcome.MISSED, decided_at__gte=now - TROUBLE_FOR
    )
    return rows.select_related("schedule__job").order_by("-planned_at")


def _overdue(user: User, now: datetime) -> QuerySet[Schedule]:
    """Select schedules that are due but were not handled: beat or workers are down."""
    mine = Project.objects.visible_to(user)
    rows = Schedule.objects.filter(next_at__lt=now - OVERDUE_AFTER, job__project__in=mine)
    return rows.select_related("job").order_by("next_at")


def _dead_letters(user: User) -> QuerySet[DeadLetter]:
    """Select dead letters; they may contain any data, so only for users who see everything."""
    rows = DeadLetter.objects.order_by()
    return rows.filter(state=DeadLetterState.HELD) if user.sees_everything else rows.none()
