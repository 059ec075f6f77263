"""Registrations and heartbeats of agents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.db import DatabaseError, OperationalError, transaction

from apps.agents.events import AGENTS_CHANGED
from apps.agents.models import Agent, Allocation
from apps.agents.queries import joinable
from apps.agents.services.history import sample
from apps.runtime.services import emit
from yardkit.errors import first_line
from yardkit.names import AGENT_ID
from yardkit.protocol import Heartbeat, Register
from yardkit.seals import seal

# Fields of a heartbeat that are stored under the same name.
REPORTED: Final = [
    "name",
    "boot",
    "labels",
    "version",
    "types",
    "problems",
    "total_memory_bytes",
    "free_memory_bytes",
    "cpu_percent",
    "downloaders",
    "qps",
    "heartbeats",
]
# Limits of problems reported by an agent, which a page shows completely.
MAX_PROBLEMS: Final = 20
# Older registrations are treated alike; a wrong clock must not overflow a date.
MAX_AGE_SECONDS: Final = 86_400.0
MAX_PROBLEM_CHARACTERS: Final = 500


@transaction.atomic
def register_agent(
    *, message: Register, now: datetime, age_seconds: float = 0.0
) -> tuple[Agent, list[Allocation]]:
    """Record that an agent has started, ``age_seconds`` ago.

    Returns it with the open allocations it needs: after a restart an agent has lost them, and a new
    one joins the runs that use every agent. A repetition returns them again, since the
    first call may have been cut short.

    Raises:
        ValidationError: invalid values in the registration.
    """
    _check_registration(message)
    agent, _created = Agent.objects.select_for_update().get_or_create(
        agent_id=message.agent, defaults={"name": message.name}
    )
    values: dict[str, Any] = {
        "name": message.name,
        "boot": message.boot,
        "seal_key": message.seal_key.hex(),
        "labels": message.labels,
        "version": message.version,
        "types": [kind.value for kind in message.types],
        "processors": message.processors,
        "total_memory_bytes": message.total_memory_bytes,
        "registered_at": now,
        "heartbeat_at": now - timedelta(seconds=min(age_seconds, MAX_AGE_SECONDS)),
    }
    if agent.boot != message.boot:
        # Reported by the previous process; the new one sends its own with the first heartbeat.
        values["problems"] = []
        values["heartbeats"] = 0
    Agent.objects.filter(pk=agent.pk).update(**values)
    for name, value in values.items():
        setattr(agent, name, value)
    for allocation in joinable(agent):
        allocation.agents.add(agent)
    return agent, list(Allocation.objects.open().filter(agents=agent))


def _check_registration(message: Register) -> None:
    if not AGENT_ID.fullmatch(message.agent):
        raise ValidationError(f"{message.agent[:80]!r} is no id of an agent")
    if message.seal_key:
        try:
            seal(message.seal_key, b"", purpose="")
        except ValueError as error:
            raise ValidationError(f"nothing can be sealed for its key: {error}") from error
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


def store_heartbeats(*, latest: Iterable[Heartbeat], now: datetime) -> dict[str, str]:
    """Save the last heartbeat of each agent; unknown agents are added. Once a minute each is also
    stored as a sample.

    Returns errors of unstorable ones by agent id: they must not affect the others.
    """
    messages = list(latest)
    try:
        _store_heartbeats(messages, now)
    except OperationalError:
        raise
    except (DatabaseError, ValueError, OverflowError) as error:
        if len(messages) == 1:
            return {messages[0].agent: first_line(error)}
        refused = {}
        for message in messages:
            refused.update(store_heartbeats(latest=[message], now=now))
        return refused
    return {}


@transaction.atomic
def _store_heartbeats(messages: Sequence[Heartbeat], now: datetime) -> None:
    """Upsert many agents in one statement: bulk_update would cost 28 times that."""
    by_id = {message.agent: message for message in messages}
    # In one order, so that two centers do not deadlock.
    rows = [
        Agent(agent_id=agent, heartbeat_at=now, **_reported(by_id[agent]))
        for agent in sorted(by_id)
    ]
    Agent.objects.bulk_create(
        rows,
        update_conflicts=True,
        unique_fields=["agent_id"],
        update_fields=[*REPORTED, "heartbeat_at"],
        batch_size=500,
    )
    sample(agents=by_id, now=now)
    # Without the figures: a page requests those of the agents it shows.
    emit(AGENTS_CHANGED)


def _reported(message: Heartbeat) -> dict[str, Any]:
    values = {name: getattr(message, name) for name in REPORTED}
    values["types"] = [kind.value for kind in message.types]
    values["problems"] = [
        problem[:MAX_PROBLEM_CHARACTERS] for problem in message.problems[:MAX_PROBLEMS]
    ]
    return values
