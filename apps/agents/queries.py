"""Queries of agents and allocations for the center and the pages."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec
from django.db.models import Count, Max, Prefetch, Q, QuerySet

from apps.access.models import User
from apps.agents.center.politeness.limits import HostRules
from apps.agents.center.runs import OpenAllocation
from apps.agents.engine.owners import OwnerFacts, number_of, owner_of
from apps.agents.hosts.host_keeper import default_limits
from apps.agents.hosts.services import load_rules
from apps.agents.models import Agent, AgentSample, Allocation
from apps.agents.states import (
    AgentMode,
    UnavailableReason,
    given_number,
    is_alive,
    none_text,
    shortfall_text,
    wanted_number,
    why_not,
)
from apps.jobs.models import Run
from apps.jobs.queries import run_facts
from yardkit.protocol import DownloaderSettings, Policy

# Runs of an agent on its page.
SHOWN_ALLOCATIONS: Final = 200


@dataclass(frozen=True, slots=True)
class AgentView:
    """An agent as pages show it."""

    agent: Agent
    alive: bool


@dataclass(frozen=True, slots=True)
class Considered:
    """An agent, and why a run cannot be given it (None: it can)."""

    agent: Agent
    refusal: UnavailableReason | None


def consider(agents: Iterable[Agent], *, alive: Collection[str], wanted: str) -> list[Considered]:
    """Judge each agent for a run that wants a downloader of type ``wanted``.

    ``alive``: ids of the living agents. Shared by the center and the preview.
    """
    return [
        Considered(
            agent,
            why_not(
                alive=agent.agent_id in alive, mode=agent.mode, types=agent.types, wanted=wanted
            ),
        )
        for agent in agents
    ]


@dataclass(frozen=True, slots=True)
class PolicyPreview:
    """Which agents a run would be given now.

    ``given`` of the eligible ones are drawn at random. ``refusal``: why the run would get none;
    ``warning``: why fewer than ``asked``.
    """

    policy: str
    wanted_type: str
    asked: int
    given: int
    considered: list[Considered]
    warning: str
    refusal: str

    @property
    def eligible(self) -> list[Agent]:
        """Agents from which the run would get some."""
        return [each.agent for each in self.considered if each.refusal is None]

    @property
    def refused(self) -> list[Considered]:
        """The others, each with its reason."""
        return [each for each in self.considered if each.refusal is not None]


def preview_allocation(
    *, policy: str, agents: int, wanted_type: str, now: datetime
) -> PolicyPreview:
    """Return what ``allocate`` would answer now; nothing is written. One query."""
    found = list(Agent.objects.all())
    alive = {agent.agent_id for agent in found if is_alive(agent.heartbeat_at, now)}
    considered = consider(found, alive=alive, wanted=wanted_type)
    refusals = [each.refusal for each in considered if each.refusal is not None]
    asked = wanted_number(policy, agents)
    given = given_number(policy, agents, len(considered) - len(refusals))
    return PolicyPreview(
        policy=policy,
        wanted_type=wanted_type,
        asked=asked,
        given=given,
        considered=considered,
        warning=shortfall_text(asked, given, refusals, wanted_type) if given else "",
        refusal="" if given else none_text(refusals, wanted_type),
    )


def open_allocation(run: int) -> OpenAllocation | None:
    """Return the open allocation of a run, see ``open_allocations``."""
    return open_allocations([run]).get(run)


def open_allocations(runs: Iterable[int]) -> dict[int, OpenAllocation]:
    """Return the open allocation of each run that has one, with those of its agents that are not
    disabled. Two queries.
    """
    return _opened(Allocation.objects.open().filter(owner__in=map(owner_of, runs)))


def all_open_allocations() -> dict[int, OpenAllocation]:
    """Return the open allocations of all runs. Two queries."""
    return _opened(Allocation.objects.open())


def _opened(rows: QuerySet[Allocation]) -> dict[int, OpenAllocation]:
    in_service = Prefetch("agents", Agent.objects.in_service())
    return {
        run: OpenAllocation(
            run=run,
            policy=row.policy,
            agents=tuple(agent.agent_id for agent in row.agents.all()),
            settings=msgspec.convert(row.settings, DownloaderSettings),
            reply_to=row.reply_to,
            project=row.project_id,
        )
        for row in rows.prefetch_related(in_service)
        if (run := number_of(row.owner)) is not None
    }


def allocation_stamps(runs: Iterable[int]) -> dict[int, tuple[int, int]]:
    """Return (id, version) of the open allocation of each run that has one. One query.

    The version changes when ``open_allocation`` may answer differently: agents are only added to
    an allocation, and enabling or disabling an agent changes its timestamp.
    """
    rows = (
        Allocation.objects.open()
        .filter(owner__in=map(owner_of, runs))
        .annotate(
            size=Count("agents"),
            disabled=Count("agents", filter=Q(agents__mode=AgentMode.DISABLED)),
            switched=Max("agents__switched_at"),
        )
        .values_list("owner", "pk", "size", "disabled", "switched")
    )
    return {
        run: (pk, hash(tuple(state)))
        for owner, pk, *state in rows
        if (run := number_of(owner)) is not None
    }


def joinable(agent: Agent) -> list[Allocation]:
    """Return open allocations that want every agent (policy random), could have been given this one
    and
    do not have it.
    """
    if agent.mode != AgentMode.ENABLED:
        return []
    wanting = Allocation.objects.open().filter(policy=Policy.RANDOM.value).exclude(agents=agent)
    return [one for one in wanting if one.downloader_type in agent.types]


def late_joins(alive: Collection[str], since: datetime) -> list[tuple[Agent, Allocation]]:
    """Return which agents in ``alive``, started or enabled since a time, are missing in which open
    allocation that wants them, see ``joinable``.

    Three queries at most, also after ten thousand agents have started together.
    """
    lately = Q(registered_at__gte=since) | Q(switched_at__gte=since)
    agents = list(Agent.objects.filter(lately, agent_id__in=alive, mode=AgentMode.ENABLED))
    wanting = list(Allocation.objects.open().filter(policy=Policy.RANDOM.value)) if agents else []
    if not wanting:
        return []
    through = Allocation.agents.through.objects
    pairs = through.filter(allocation__in=wanting, agent__in=agents)
    given = set(pairs.values_list("allocation_id", "agent_id"))
    return [
        (agent, one)
        for agent in agents
        for one in wanting
        if (one.pk, agent.pk) not in given and one.downloader_type in agent.types
    ]


def last_heard(now: datetime) -> dict[str, float]:
    """Return the seconds since the last stored heartbeat of each living agent."""
    rows = Agent.objects.alive(now).values_list("agent_id", "heartbeat_at")
    return {agent: (now - heard).total_seconds() for agent, heard in rows if heard is not None}


def heartbeats_heard() -> dict[str, tuple[str, int]]:
    """Return (incarnation, number of the last heartbeat) of each agent."""
    rows = Agent.objects.values_list("agent_id", "boot", "heartbeats")
    return {agent: (incarnation, heartbeats) for agent, incarnation, heartbeats in rows}


def newest_allocation(owner: str) -> Allocation | None:
    """Return the newest allocation of ``owner``, open or released, with its agents."""
    return Allocation.objects.filter(owner=owner).prefetch_related("agents").order_by("-id").first()


def samples_since(agent: Agent, since: datetime) -> list[AgentSample]:
    """Return the samples of one agent, oldest first. One query."""
    return list(AgentSample.objects.filter(agent=agent, at__gte=since).order_by("at"))


def qps_lines(agents: Collection[int], since: datetime) -> dict[int, list[tuple[float, float]]]:
    """Return (Unix seconds, QPS) of each minute by agent row id, oldest first. One query."""
    lines: dict[int, list[tuple[float, float]]] = {}
    rows = AgentSample.objects.filter(agent_id__in=agents, at__gte=since).order_by("agent_id", "at")
    for agent, at, qps in rows.values_list("agent_id", "at", "qps"):
        lines.setdefault(agent, []).append((at.timestamp(), qps))
    return lines


@dataclass(frozen=True, slots=True)
class Served:
    """Open allocations of an agent: (allocation, its run or None), and the number not shown.

    ``hidden``: of projects that the person may not see.
    """

    shown: list[tuple[Allocation, Run | None]]
    hidden: int


def served_by(agent: Agent, person: User | None) -> Served:
    """Return the open allocations of an agent that ``person`` may see, newest first. Three
    queries.
    """
    open_ones = Allocation.objects.open().filter(agents=agent)
    visible = list(open_ones.visible_to(person).select_related("project")[:SHOWN_ALLOCATIONS])
    runs = Run.objects.select_related("job").in_bulk(
        [run for run in map(run_of, visible) if run is not None]
    )
    return Served(
        shown=[(each, runs.get(run_of(each) or 0)) for each in visible],
        hidden=open_ones.count() - len(visible),
    )


def run_of(allocation: Allocation) -> int | None:
    """Return the run that owns the allocation, if a run does."""
    number = number_of(allocation.owner)
    return number if number is not None and number > 0 else None


def run_owners(runs: Iterable[int]) -> dict[int, OwnerFacts]:
    """Return facts of runs as owners of allocations."""
    return {
        run: OwnerFacts(
            facts.project, facts.active, facts.allowed_networks, facts.pages, facts.replay
        )
        for run, facts in run_facts(runs).items()
    }


def host_rules() -> HostRules:
    """Return the defaults and the host rules. One query."""
    return HostRules.of(default_limits(), load_rules())
