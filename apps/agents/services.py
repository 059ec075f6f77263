"""Every write of this app: agents as they report, allocations as the center makes them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec
from django.core.exceptions import ValidationError
from django.db import DatabaseError, OperationalError, transaction

from apps.access.models import User
from apps.access.services import record
from apps.agents.center.liveness import is_agent_id
from apps.agents.errors import AllocationRefused, NoAgentFree
from apps.agents.models import Agent, Allocation
from apps.agents.queries import joinable
from apps.jobs.queries import run_facts
from yardkit.protocol import Allocate, DownloaderSettings, Heartbeat, Policy, Register

HEARTBEAT_FIELDS = [
    "name",
    "boot",
    "labels",
    "version",
    "total_memory_bytes",
    "free_memory_bytes",
    "cpu_percent",
    "downloaders",
    "qps",
    "heartbeat_at",
]


@transaction.atomic
def register_agent(*, message: Register, now: datetime) -> tuple[Agent, list[Allocation]]:
    """Note that an agent has started.

    Returns it with the open allocations it must be told of: an agent that was restarted remembers
    nothing of them, and one that is new joins the runs that use every agent (seed S1.36). A
    repeat returns them again, because the first time may have been cut short.

    Raises:
        ValidationError: the agent says of itself what cannot be true.
    """
    _check_registration(message)
    agent, _created = Agent.objects.select_for_update().get_or_create(
        agent_id=message.agent, defaults={"name": message.name}
    )
    Agent.objects.filter(pk=agent.pk).update(
        name=message.name,
        boot=message.boot,
        labels=message.labels,
        version=message.version,
        processors=message.processors,
        total_memory_bytes=message.total_memory_bytes,
        registered_at=now,
        heartbeat_at=now,
    )
    for allocation in joinable(agent):
        allocation.agents.add(agent)
    return agent, list(Allocation.objects.open().filter(agents=agent))


def _check_registration(message: Register) -> None:
    if not is_agent_id(message.agent):
        raise ValidationError(f"{message.agent[:80]!r} is no id of an agent")
    said = Agent(
        agent_id=message.agent,
        name=message.name,
        boot=message.boot,
        labels=message.labels,
        version=message.version,
        processors=message.processors,
        total_memory_bytes=message.total_memory_bytes,
    )
    said.clean_fields()


def join_run(*, allocation: Allocation, agent: Agent) -> None:
    """From now on ``agent`` serves the run too; it has its downloader already."""
    allocation.agents.add(agent)


@transaction.atomic
def enable_agent(*, agent: Agent, enabled: bool, actor: User | None) -> bool:
    """Let the center give the agent to new runs, or not; what it serves now it keeps.

    False when it was so already.
    """
    changed = Agent.objects.filter(pk=agent.pk, enabled=not enabled).update(enabled=enabled)
    agent.enabled = enabled
    if changed:
        record(
            actor=actor,
            action="agents.enable_agent" if enabled else "agents.disable_agent",
            obj=agent,
            before={"enabled": not enabled},
            after={"enabled": enabled},
        )
    return bool(changed)


def store_heartbeats(*, latest: Iterable[Heartbeat], now: datetime) -> dict[str, str]:
    """Write the last heartbeat of each agent; an unknown one is added.

    Returns what is wrong with those that cannot be stored, by agent id: they must not take the
    others with them.
    """
    messages = list(latest)
    try:
        _store_heartbeats(messages, now)
    except OperationalError:
        raise
    except (DatabaseError, ValueError, OverflowError) as error:
        if len(messages) == 1:
            return {messages[0].agent: _first_line(error)}
        refused = {}
        for message in messages:
            refused.update(store_heartbeats(latest=[message], now=now))
        return refused
    return {}


@transaction.atomic
def _store_heartbeats(messages: Sequence[Heartbeat], now: datetime) -> None:
    """One INSERT ... ON CONFLICT for many agents: a bulk_update of so many costs 28 times that."""
    by_id = {message.agent: message for message in messages}
    reported = HEARTBEAT_FIELDS[:-1]
    # In one order, so that two centers do not wait for each other's rows crosswise.
    rows = [
        Agent(
            agent_id=agent_id,
            heartbeat_at=now,
            **{name: getattr(by_id[agent_id], name) for name in reported},
        )
        for agent_id in sorted(by_id)
    ]
    Agent.objects.bulk_create(
        rows,
        update_conflicts=True,
        unique_fields=["agent_id"],
        update_fields=HEARTBEAT_FIELDS,
        batch_size=500,
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


@transaction.atomic
def allocate(*, message: Allocate, alive: Sequence[str], now: datetime) -> Allocation:
    """Choose agents for a run among those ``alive`` and record them (seed S1.35 to S1.37).

    The networks its agents may reach come from the run's project, never from the run itself.

    Raises:
        AllocationRefused: no such active run.
        NoAgentFree: no agent to give just now.
    """
    facts = run_facts([message.run]).get(message.run)
    if facts is None:
        raise AllocationRefused(f"run {message.run} does not exist")
    if not facts.active:
        raise AllocationRefused(f"run {message.run} has already ended")
    if message.agents < 0:
        raise AllocationRefused(f"{message.agents} agents cannot be allocated")
    owner = f"run:{message.run}"
    before = Allocation.objects.open().filter(owner=owner).first()
    if before is not None and before.reply_to == message.reply_to:
        return before
    candidates = list(Agent.objects.filter(agent_id__in=alive, enabled=True))
    if not candidates:
        raise NoAgentFree("no agent is alive and enabled")
    wanted = len(candidates) if message.policy == Policy.RANDOM else max(1, message.agents)
    chosen = random.sample(candidates, min(wanted, len(candidates)))
    warning = ""
    if message.agents > len(chosen):
        warning = f"{message.agents} agents asked for, {len(chosen)} given"
    settings = msgspec.structs.replace(
        message.settings, allowed_networks=list(facts.allowed_networks)
    )
    if before is not None:
        # The run was started anew; answers to its earlier execution reach nobody.
        Allocation.objects.filter(pk=before.pk).update(released_at=now)
    allocation = Allocation.objects.create(
        project_id=facts.project,
        owner=owner,
        reply_to=message.reply_to,
        policy=message.policy.value,
        asked=message.agents,
        settings=msgspec.to_builtins(settings),
        warning=warning,
        created_at=now,
    )
    allocation.agents.set(chosen)
    return allocation


@transaction.atomic
def release(*, owner: str, now: datetime) -> list[Allocation]:
    """Give back the agents of ``owner``; the allocations that were open are returned."""
    open_ones = list(Allocation.objects.open().filter(owner=owner).prefetch_related("agents"))
    Allocation.objects.filter(pk__in=[a.pk for a in open_ones]).update(released_at=now)
    return open_ones


def release_ended(*, now: datetime) -> list[Allocation]:
    """Allocations of runs that ended without giving their agents back."""
    open_owners = dict(Allocation.objects.open().values_list("owner", "pk"))
    runs = {int(owner[4:]): owner for owner in open_owners if owner.startswith("run:")}
    facts = run_facts(runs)
    released = []
    for run, owner in runs.items():
        if run not in facts or not facts[run].active:
            released += release(owner=owner, now=now)
    return released


def downloader_settings(allocation: Allocation) -> DownloaderSettings:
    """The settings an allocation was recorded with."""
    return msgspec.convert(allocation.settings, DownloaderSettings)
