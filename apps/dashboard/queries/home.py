"""What the home page shows, read in a fixed number of queries."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from apps.access.models import User
from apps.agents.queries import AgentView, agent_views
from apps.agents.states import AgentMode
from apps.alerts.models import Incident
from apps.alerts.queries import open_incidents
from apps.jobs.models import Job, PlannedRun, Run, Schedule
from apps.jobs.states import PlanOutcome, RunState
from apps.projects.models import Project
from apps.queuestats.queries import RunBooks, books_of
from apps.routing.queries import ProjectTrouble, projects_in_trouble
from apps.runtime.models import Daemon, DeadLetter
from apps.runtime.queries import stale_daemons
from apps.runtime.states import DeadLetterState
from apps.seeds.queries import SeedsHome, seeds_home

TROUBLE_FOR: Final = timedelta(hours=24)
SHOWN_RUNS: Final = 50
SHOWN_TROUBLES: Final = 10
SHOWN_ENDED: Final = 8
SHOWN_MISSED: Final = 5
# More are told as "100 or more".
MOST_COUNTED: Final = 100
# Beat decides within seconds, and a host takes a run within seconds.
OVERDUE_AFTER: Final = timedelta(minutes=1)
STUCK_AFTER: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run and its books, as a line of a table."""

    run: Run
    books: RunBooks


@dataclass(frozen=True, slots=True)
class HomeView:
    """Everything on the home page but the queues."""

    incidents: list[Incident] = field(default_factory=list)
    incident_count: int = 0
    troubles: list[Run] = field(default_factory=list)
    trouble_count: int = 0
    silent: list[AgentView] = field(default_factory=list)
    late: list[Daemon] = field(default_factory=list)
    dead_letters: int = 0
    # Planned times of the last day that nobody started a run for, and those past and undecided.
    missed: list[PlannedRun] = field(default_factory=list)
    missed_count: int = 0
    overdue: list[Schedule] = field(default_factory=list)
    # Queued for long without a host.
    stuck: list[Run] = field(default_factory=list)
    routing: list[ProjectTrouble] = field(default_factory=list)
    active: list[RunRow] = field(default_factory=list)
    active_count: int = 0
    ended: list[RunRow] = field(default_factory=list)
    alive: list[AgentView] = field(default_factory=list)
    has_jobs: bool = False
    # None: nobody has seeds.
    seeds: SeedsHome | None = None

    @property
    def all_well(self) -> bool:
        """Nothing waits for a person."""
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
    """The home page of ``user``: their projects' runs, and the machinery all share."""
    runs = Run.objects.visible_to(user).select_related("job__project")
    incidents = open_incidents(user, limit=MOST_COUNTED)
    # What an incident on this page says already is not said a second time.
    said = incidents[:SHOWN_TROUBLES]
    keys = {each.key for each in said}
    broken_runs = [
        each.facts["run"]
        for each in said
        if each.source in ("run.failed", "run.lost") and isinstance(each.facts.get("run"), int)
    ]
    troubles = (
        runs.filter(state__in=[RunState.FAILED, RunState.LOST], ended_at__gte=now - TROUBLE_FOR)
        .exclude(pk__in=broken_runs)
        .order_by("-ended_at")
    )
    active = list(runs.active()[: SHOWN_RUNS + 1])
    ended = list(runs.ended().order_by("-ended_at")[:SHOWN_ENDED])
    books = books_of(run.owner for run in (*active, *ended))
    agents = agent_views(now)
    broken = list(troubles[: SHOWN_TROUBLES + 1])
    missed = _missed(user, now)
    return HomeView(
        incidents=said,
        incident_count=len(incidents),
        troubles=broken[:SHOWN_TROUBLES],
        trouble_count=troubles.count() if len(broken) > SHOWN_TROUBLES else len(broken),
        silent=[
            view
            for view in agents
            if view.agent.mode != AgentMode.DISABLED
            and not view.alive
            and f"agent:{view.agent.agent_id}" not in keys
        ],
        # Judged by the database's clock, which also wrote their heartbeats.
        late=[each for each in stale_daemons() if f"daemon:{each.kind}:{each.name}" not in keys],
        dead_letters=_dead_letters(user),
        missed=missed[:SHOWN_MISSED],
        missed_count=len(missed),
        overdue=_overdue(user, now),
        stuck=[run for run in active if _is_stuck(run, now)][:SHOWN_TROUBLES],
        routing=projects_in_trouble(user, now),
        active=[RunRow(run, books[run.owner]) for run in active[:SHOWN_RUNS]],
        active_count=runs.active().count() if len(active) > SHOWN_RUNS else len(active),
        ended=[RunRow(run, books[run.owner]) for run in ended],
        alive=[view for view in agents if view.alive],
        has_jobs=bool(active or ended) or Job.objects.visible_to(user).exists(),
        seeds=seeds_home(user, now),
    )


def _missed(user: User, now: datetime) -> list[PlannedRun]:
    """Planned times of the last day that passed without a run, the newest first."""
    rows = PlannedRun.objects.visible_to(user).filter(
        outcome=PlanOutcome.MISSED, decided_at__gte=now - TROUBLE_FOR
    )
    return list(rows.select_related("schedule__job").order_by("-planned_at")[:MOST_COUNTED])


def _overdue(user: User, now: datetime) -> list[Schedule]:
    """Schedules whose time is past and undecided: nobody looks at them."""
    mine = Project.objects.visible_to(user)
    rows = Schedule.objects.filter(next_at__lt=now - OVERDUE_AFTER, job__project__in=mine)
    return list(rows.select_related("job").order_by("next_at")[:SHOWN_MISSED])


def _is_stuck(run: Run, now: datetime) -> bool:
    """It could start and does not; one that waits for another run, or for its time, is not late."""
    if run.state != RunState.QUEUED or run.waits_for_id is not None:
        return False
    return now - max(run.created_at, run.not_before or run.created_at) > STUCK_AFTER


def _dead_letters(user: User) -> int:
    """Dead letters may carry anything, so only those who see everything are told of them."""
    if not user.sees_everything:
        return 0
    return DeadLetter.objects.filter(state=DeadLetterState.HELD).count()
