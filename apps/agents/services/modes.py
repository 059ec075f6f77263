"""Operators' decisions about agents."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from django.db import transaction
from django.utils.translation import gettext as _

from apps.access.models import User
from apps.access.services import record
from apps.agents.errors import AgentNotAlive
from apps.agents.events import AGENTS_CHANGED
from apps.agents.models import Agent
from apps.agents.states import AgentMode, is_alive
from apps.runtime.services import emit, enqueue
from yardkit import topology
from yardkit.protocol import ExitAgent

# An agent that starts later must not find the message and exit again.
EXIT_TTL_SECONDS: Final = 10.0
# Names in the audit trail: the verb, not the state.
VERBS: Final[dict[str, str]] = {
    AgentMode.ENABLED: "enable",
    AgentMode.DRAINING: "drain",
    AgentMode.DISABLED: "disable",
}


@transaction.atomic
def switch_agent(*, agent: Agent, mode: AgentMode, actor: User | None, now: datetime) -> bool:
    """Change the mode of an agent; the centers know within 5 s.

    Draining: no new runs, those it serves continue. Disabled: nothing more is sent to it either.
    Returns False when nothing changed.
    """
    stored = Agent.objects.select_for_update().filter(pk=agent.pk).exclude(mode=mode)
    before = stored.values_list("mode", flat=True).first()
    agent.mode = mode
    if before is None:
        return False
    Agent.objects.filter(pk=agent.pk).update(mode=mode, switched_at=now)
    agent.switched_at = now
    record(
        actor=actor,
        action=f"agents.{VERBS[mode]}_agent",
        obj=agent,
        before={"mode": before},
        after={"mode": mode.value},
    )
    emit(AGENTS_CHANGED)
    return True


@transaction.atomic
def exit_agent(*, agent: Agent, reason: str, actor: User | None, now: datetime) -> None:
    """Ask an agent to finish what it holds and to exit.

    Its supervisor may start it again. The message is void after 10 s.

    Raises:
        AgentSilent: it is not alive.
    """
    if not is_alive(agent.heartbeat_at, now):
        raise AgentNotAlive(
            _("Agent %(agent)s is not alive, so it cannot be asked to exit.") % {"agent": agent}
        )
    enqueue(
        key=topology.agent_commands(agent.agent_id).name,
        body=ExitAgent(reason=reason),
        ttl_seconds=EXIT_TTL_SECONDS,
    )
    record(actor=actor, action="agents.exit_agent", obj=agent, note=reason)
