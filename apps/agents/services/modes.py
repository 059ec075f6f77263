"""What people decide about agents."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from django.db import transaction
from django.utils.translation import gettext as _

from apps.access.models import User
from apps.access.services import record
from apps.agents.errors import AgentSilent
from apps.agents.events import AGENTS_CHANGED
from apps.agents.models import Agent
from apps.agents.states import AgentMode, is_alive
from apps.runtime.services import emit, enqueue
from yardkit import topology
from yardkit.protocol import ExitAgent

# An agent that starts later must not find the message and leave again.
EXIT_TTL_SECONDS: Final = 10.0
# As the trail names them: the verb, not the state.
VERBS: Final[dict[str, str]] = {
    AgentMode.ENABLED: "enable",
    AgentMode.DRAINING: "drain",
    AgentMode.DISABLED: "disable",
}


@transaction.atomic
def switch_agent(*, agent: Agent, mode: AgentMode, actor: User | None, now: datetime) -> bool:
    """Put an agent into service, or out of it; the centers know within 5 s.

    Draining: no new runs, those it serves go on. Disabled: nothing more is sent to it either.
    False when it was so already.
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
    """Tell an agent to finish what it holds and to leave (seed S1.23).

    Whether it comes back is up to what supervises it. The message is void after 10 s.

    Raises:
        AgentSilent: it is not alive, so there is nobody to tell.
    """
    if not is_alive(agent.heartbeat_at, now):
        raise AgentSilent(
            _("Agent %(agent)s is not alive: there is nothing to end.") % {"agent": agent}
        )
    enqueue(
        key=topology.agent_commands(agent.agent_id).name,
        body=ExitAgent(reason=reason),
        ttl_seconds=EXIT_TTL_SECONDS,
    )
    record(actor=actor, action="agents.exit_agent", obj=agent, note=reason)
