"""What agents say of themselves: registrations and heartbeats."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.db import DatabaseError, OperationalError, connection, transaction

from apps.agents.center.liveness import is_agent_id
from apps.agents.events import AGENTS_CHANGED
from apps.agents.models import Agent, Allocation
from apps.agents.queries import joinable
from apps.agents.services.history import sample
from apps.runtime.services import emit
from yardkit.protocol import Heartbeat, Register

# What an agent says of itself seldom changes, and is then written by itself.
FACTS: Final = ["name", "boot", "labels", "version", "total_memory_bytes", "types", "problems"]
FIGURES: Final = ["free_memory_bytes", "cpu_percent", "downloaders", "qps"]
# An agent's own words, of which a page shows all.
MAX_PROBLEMS: Final = 20
MAX_PROBLEM_CHARACTERS: Final = 500


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
    values: dict[str, Any] = {
        "name": message.name,
        "boot": message.boot,
        "labels": message.labels,
        "version": message.version,
        "types": [each.value for each in message.types],
        "processors": message.processors,
        "total_memory_bytes": message.total_memory_bytes,
        "registered_at": now,
        "heartbeat_at": now,
    }
    if agent.boot != message.boot:
        # Of the process before; the new one tells its own with the first heartbeat.
        values["problems"] = []
    Agent.objects.filter(pk=agent.pk).update(**values)
    for name, value in values.items():
        setattr(agent, name, value)
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


def store_heartbeats(*, latest: Iterable[Heartbeat], now: datetime) -> dict[str, str]:
    """Write the last heartbeat of each agent; an unknown one is added. Once a minute each is
    also kept as a sample.

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
    by_id = {message.agent: message for message in messages}
    # By id: two centers that write the same rows in different orders would lock each other out.
    reported = Agent.objects.filter(agent_id__in=by_id).order_by("pk")
    known = list(reported)
    missing = by_id.keys() - {agent.agent_id for agent in known}
    if missing:
        Agent.objects.bulk_create(
            [Agent(agent_id=agent_id) for agent_id in sorted(missing)], ignore_conflicts=True
        )
        known = list(reported.all())
    changed = []
    for agent in known:
        message = by_id[agent.agent_id]
        if _take_over(agent, _facts(message)):
            changed.append(agent)
        _take_over(agent, {name: getattr(message, name) for name in FIGURES})
        agent.heartbeat_at = now
    _write(changed, FACTS)
    _write(known, [*FIGURES, "heartbeat_at"])
    sample(known, now)
    # Without the figures: a page asks for those of the agents it shows.
    emit(AGENTS_CHANGED)


def _write(agents: Sequence[Agent], names: Sequence[str]) -> None:
    """Store these fields of each agent: one prepared statement, executed for every row.

    ``bulk_update`` makes one expression of all rows, which takes ten times as long.
    """
    if not agents:
        return
    fields = [field for field in Agent._meta.concrete_fields if field.name in names]
    quote = connection.ops.quote_name
    columns = ", ".join(f"{quote(str(field.column))} = %s" for field in fields)
    table, key = quote(Agent._meta.db_table), quote("id")
    rows = [
        [
            *(field.get_db_prep_save(getattr(agent, field.name), connection) for field in fields),
            agent.pk,
        ]
        for agent in agents
    ]
    with connection.cursor() as cursor:
        # Nothing but names of columns is put into the text.
        cursor.executemany(f"UPDATE {table} SET {columns} WHERE {key} = %s", rows)  # noqa: S608


def _facts(message: Heartbeat) -> dict[str, Any]:
    return {
        "name": message.name,
        "boot": message.boot,
        "labels": message.labels,
        "version": message.version,
        "total_memory_bytes": message.total_memory_bytes,
        "types": [each.value for each in message.types],
        "problems": [each[:MAX_PROBLEM_CHARACTERS] for each in message.problems[:MAX_PROBLEMS]],
    }


def _take_over(agent: Agent, values: dict[str, Any]) -> bool:
    """Set the values on the object; whether any of them is new."""
    changed = False
    for name, value in values.items():
        if getattr(agent, name) != value:
            setattr(agent, name, value)
            changed = True
    return changed


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
