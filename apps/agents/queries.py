"""Reads of agents and allocations for the center and the pages."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

import msgspec
from django.db.models import Count

from apps.agents.center.runs import OpenAllocation
from apps.agents.models import Agent, Allocation
from apps.agents.states import is_alive
from yardkit.protocol import DownloaderSettings, Policy


@dataclass(frozen=True, slots=True)
class AgentView:
    """An agent as pages show it."""

    agent: Agent
    alive: bool


def open_allocation(run: int) -> OpenAllocation | None:
    """The open allocation of a run, from the database. One query more for its agents."""
    allocation = (
        Allocation.objects.open().filter(owner=f"run:{run}").prefetch_related("agents").first()
    )
    if allocation is None:
        return None
    return OpenAllocation(
        run=run,
        policy=allocation.policy,
        agents=tuple(agent.agent_id for agent in allocation.agents.all()),
        settings=msgspec.convert(allocation.settings, DownloaderSettings),
        reply_to=allocation.reply_to,
    )


def allocation_stamps(runs: Iterable[int]) -> dict[int, tuple[int, int]]:
    """(id, number of agents) of the open allocation of each run that has one. One query.

    An allocation only ever gets more agents, so it is unchanged while its stamp is.
    """
    rows = (
        Allocation.objects.open()
        .filter(owner__in=[f"run:{run}" for run in runs])
        .annotate(size=Count("agents"))
        .values_list("owner", "pk", "size")
    )
    return {int(owner.removeprefix("run:")): (pk, size) for owner, pk, size in rows}


def joinable(agent: Agent) -> list[Allocation]:
    """Open allocations that want every agent (policy random) and do not have this one."""
    if not agent.enabled:
        return []
    wanting = Allocation.objects.open().filter(policy=Policy.RANDOM.value)
    return list(wanting.exclude(agents=agent))


def recently_registered(alive: Collection[str], since: datetime) -> list[Agent]:
    """Those of the agents in ``alive`` that have started since then."""
    return list(Agent.objects.filter(registered_at__gte=since, agent_id__in=alive))


def last_heard(now: datetime) -> dict[str, float]:
    """Seconds since the last heartbeat of each living agent that any center has written down."""
    rows = Agent.objects.alive(now).values_list("agent_id", "heartbeat_at")
    return {agent: (now - heard).total_seconds() for agent, heard in rows if heard is not None}


def newest_allocation(owner: str) -> Allocation | None:
    """The newest allocation of ``owner``, open or released, with its agents (seed S1.16)."""
    return Allocation.objects.filter(owner=owner).prefetch_related("agents").order_by("-id").first()


def agents_of(owner: str) -> list[Agent]:
    """The agents of the newest allocation of ``owner``, open or released (seed S1.16)."""
    allocation = newest_allocation(owner)
    return list(allocation.agents.all()) if allocation else []


def agent_views(now: datetime) -> list[AgentView]:
    """Every agent with its liveness (seed S1.15)."""
    return [AgentView(agent, is_alive(agent.heartbeat_at, now)) for agent in Agent.objects.all()]
