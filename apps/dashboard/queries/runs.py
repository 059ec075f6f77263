"""Data of the page of a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.db.models import Count
from django.utils.translation import gettext_lazy as _

from apps.agents.models import Agent, Allocation
from apps.agents.queries import newest_allocation
from apps.agents.states import is_alive
from apps.jobs.models import Run, RunCommand, RunMove
from apps.jobs.services import explain_run_placement
from apps.jobs.states import RunAsk, RunState
from apps.queuestats.models import FailedRequest, RunStats
from apps.queuestats.queries import CenterTotals, RunTotals, center_totals, run_totals
from yardkit import topology

SHOWN_FAILURES: Final = 50
SHOWN_COMMANDS: Final = 20

_STANDINGS: Final = {
    "done": _("acknowledged"),
    "refused": _("refused"),
    "asked": _("asked"),
    "unanswered": _("unanswered"),
    "void": _("void"),
}
_STANDING_TONES: Final = {
    "done": "success",
    "refused": "danger",
    "asked": "info",
    "unanswered": "warning",
    "void": "default",
}


@dataclass(frozen=True, slots=True)
class AgentShare:
    """An agent's share of a run: responses, and their percentage of all responses."""

    agent_id: str
    name: str
    alive: bool
    allocated: bool
    # None if the agent was deleted.
    agent: Agent | None
    answers: int
    percent: float
    failed: int = 0
    mean_ms: float | None = None


@dataclass(frozen=True, slots=True)
class CommandStatus:
    """A command sent to a run, with its status: done, refused, asked, unanswered or void.

    ``void``: the run, or this execution of it, ended without an answer.
    """

    command: RunCommand
    standing: str

    @property
    def tone(self) -> str:
        return _STANDING_TONES[self.standing]

    @property
    def label(self) -> str:
        return str(_STANDINGS[self.standing])


@dataclass(frozen=True, slots=True)
class RunView:
    """Content of the page of a run."""

    run: Run
    # Why the run has no host; computed here if no runner is alive to store the reason.
    waits_because: str
    totals: RunTotals
    center: CenterTotals
    moves: list[RunMove]
    commands: list[CommandStatus]
    retries: list[Run]
    agents: list[AgentShare]
    allocation: Allocation | None
    failures: list[FailedRequest]
    failure_count: int
    previous: Previous | None

    @property
    def balanced(self) -> bool:
        """Whether all requests and attempts of the run and its centers are accounted for."""
        return self.totals.balanced and self.center.balanced

    @property
    def allowed(self) -> list[RunAsk]:
        """Commands offered on the page; freeze only after an unanswered command."""
        return _offered(self.run, self.commands)

    @property
    def limits(self) -> dict[str, Any]:
        """Concurrency and speed of the run: of its job, or as changed since the start."""
        limits: dict[str, Any] = {
            "concurrency": self.run.job.concurrency,
            "speed": self.run.job.speed,
        }
        for status in self.commands:
            if status.command.boot == self.run.boot and status.command.accepted:
                limits |= status.command.settings
        return limits

    @property
    def overrides(self) -> str:
        """Settings of the job that override those of the spider class, as text."""
        settings = self.run.job.spider_settings()
        return ", ".join(f"{name} {value:g}" for name, value in settings.items())

    @property
    def waits_for_answer(self) -> bool:
        """Whether a command is still unanswered, so that the page refreshes later."""
        return any(status.standing == "asked" for status in self.commands)

    @property
    def percent(self) -> float:
        """Finished requests in percent of the total."""
        return self.totals.success_percent + self.totals.failed_percent


def run_view(run: Run, now: datetime) -> RunView:
    """Return the content of the page of one run."""
    other = previous_live_run(run)
    all_totals = run_totals(r.owner for r in (run, other) if r is not None)
    totals = all_totals[run.owner]
    failures = FailedRequest.objects.filter(owner=run.owner)
    allocation = newest_allocation(run.owner)
    counted = failures.aggregate(count=Count("pk"))["count"]
    return RunView(
        run=run,
        waits_because=_waits_because(run, now),
        totals=totals,
        center=center_totals([run.owner])[run.owner],
        moves=list(run.moves.all()),
        commands=[CommandStatus(c, _standing(c, run, now)) for c in _newest_commands(run)],
        retries=list(run.retries.select_related("job")),
        agents=agent_shares(totals, allocation.agents.all() if allocation else (), now),
        allocation=allocation,
        failures=list(failures[:SHOWN_FAILURES]) if counted else [],
        failure_count=counted,
        previous=_compared(run, other, all_totals),
    )


def run_actions(run: Run, now: datetime) -> list[RunAsk]:
    """Return the commands offered for a run, as ``RunView.allowed``. One query if it is active."""
    if not run.is_active:
        return []
    return _offered(run, [CommandStatus(c, _standing(c, run, now)) for c in _newest_commands(run)])


def _offered(run: Run, commands: Iterable[CommandStatus]) -> list[RunAsk]:
    unanswered = any(status.standing == "unanswered" for status in commands)
    return [ask for ask in run.allowed if ask != RunAsk.FREEZE or unanswered]


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure of a run beside that of the previous run of the job."""

    name: str
    value: float
    previous: float

    @property
    def percent(self) -> float | None:
        """Change in percent; None if the previous figure is 0."""
        if not self.previous:
            return None
        return 100.0 * (self.value - self.previous) / self.previous


@dataclass(frozen=True, slots=True)
class Previous:
    """The run before another one of its job, and both of their figures."""

    run: Run
    measures: list[Measure]


def previous_live_run(run: Run) -> Run | None:
    """Return the newest earlier run of the job that has ended and read sites; of a replay its own.

    One query.
    """
    if run.replay_of_id is not None:
        return Run.objects.filter(pk=run.replay_of_id).select_related("job").first()
    earlier = Run.objects.ended().live().filter(job=run.job_id, pk__lt=run.pk)
    return earlier.order_by("-id").select_related("job").first()


def _compared(run: Run, other: Run | None, totals: dict[str, RunTotals]) -> Previous | None:
    if other is None:
        return None
    mine, theirs = totals[run.owner], totals[other.owner]
    names = ("items", "total", "failed", "bytes_received")
    measures = [Measure(name, getattr(mine, name), getattr(theirs, name)) for name in names]
    if run.started_at and run.ended_at and other.started_at and other.ended_at:
        seconds = (run.ended_at - run.started_at).total_seconds()
        before = (other.ended_at - other.started_at).total_seconds()
        measures.append(Measure("seconds", seconds, before))
    return Previous(other, measures)


def framework_stats(run: Run) -> list[tuple[str, Any]]:
    """Return the statistics of a run's framework, such as Scrapy's, by name in order."""
    row = RunStats.objects.filter(run=run).values_list("stats", flat=True).first()
    return sorted((row or {}).items())


def _waits_because(run: Run, now: datetime) -> str:
    if run.state != RunState.QUEUED or run.host:
        return ""
    return run.waiting_reason or explain_run_placement(run=run, now=now).reason


def _newest_commands(run: Run) -> list[RunCommand]:
    return list(reversed(run.commands.order_by("-id")[:SHOWN_COMMANDS]))


def _standing(command: RunCommand, run: Run, now: datetime) -> str:
    if command.answered_at is not None:
        return "done" if command.accepted else "refused"
    if not run.is_active or command.boot != run.boot:
        return "void"
    waited = (now - command.asked_at).total_seconds()
    return "unanswered" if waited >= topology.LIFECYCLE_ANSWER_SECONDS else "asked"


def agent_shares(totals: RunTotals, allocated: Iterable[Agent], now: datetime) -> list[AgentShare]:
    """Return current and earlier agents of a run with responses; most responses first."""
    answers = totals.agents
    by_id = {agent.agent_id: agent for agent in allocated}
    mine = frozenset(by_id)
    others = set(answers) - mine
    if others:
        by_id |= {a.agent_id: a for a in Agent.objects.filter(agent_id__in=others)}
    total = sum(answers.values())
    shares = [
        AgentShare(
            agent_id=agent_id,
            name=str(by_id[agent_id]) if agent_id in by_id else agent_id,
            alive=agent_id in by_id and is_alive(by_id[agent_id].heartbeat_at, now),
            allocated=agent_id in mine,
            agent=by_id.get(agent_id),
            answers=answers.get(agent_id, 0),
            percent=100.0 * answers.get(agent_id, 0) / total if total else 0.0,
            failed=totals.agent_failed.get(agent_id, 0),
            mean_ms=totals.agent_ms[agent_id] / answers[agent_id]
            if agent_id in totals.agent_ms and answers.get(agent_id)
            else None,
        )
        for agent_id in mine | set(answers)
    ]
    return sorted(shares, key=lambda share: (-share.answers, share.name))
