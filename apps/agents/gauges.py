"""Metrics of agents and allocations."""

from __future__ import annotations

from typing import Final

from django.db.models import Count
from django.utils import timezone

from apps.agents.models import Agent, Allocation
from apps.agents.states import AgentMode, is_alive
from apps.runtime.services.depths import BrokerQueue, watch_queues
from yardkit import metrics, topology
from yardkit.metrics import Reading

# Most living agents with series of their own, five each; all are counted.
MOST_AGENTS: Final = 200


def _agents() -> dict[str, Reading]:
    now = timezone.now()
    found = list(Agent.objects.values_list("mode", "heartbeat_at"))
    alive = [mode for mode, beat in found if is_alive(beat, now)]
    silent = [
        mode for mode, beat in found if mode != AgentMode.DISABLED and not is_alive(beat, now)
    ]
    return {
        "agents.alive": len(alive),
        "agents.silent": len(silent),
        "agents.draining": alive.count(AgentMode.DRAINING),
        "agents.disabled": sum(mode == AgentMode.DISABLED for mode, _beat in found),
    }


def _each_agent() -> dict[str, Reading]:
    found: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in EACH}
    for agent in Agent.objects.alive(timezone.now()).order_by("pk")[:MOST_AGENTS]:
        key = (agent.agent_id,)
        used = agent.total_memory_bytes - agent.free_memory_bytes
        found["agent.qps"][key] = agent.qps
        found["agent.cpu_percent"][key] = agent.cpu_percent
        found["agent.free_memory_bytes"][key] = agent.free_memory_bytes
        found["agent.downloaders"][key] = agent.downloaders
        if agent.total_memory_bytes:
            found["agent.memory_percent"][key] = 100.0 * used / agent.total_memory_bytes
    return dict(found)


def _allocations() -> Reading:
    rows = Allocation.objects.open().order_by().values_list("project").annotate(Count("pk"))
    return {(str(project),): float(count) for project, count in rows}


def _queues() -> list[BrokerQueue]:
    enabled = Agent.objects.exclude(mode=AgentMode.DISABLED).order_by("pk")
    ids = enabled.values_list("agent_id", flat=True)[:MOST_AGENTS]
    return [BrokerQueue(topology.agent_commands(number).name) for number in ids]


EACH = {
    "agent.qps": "Downloads a second over the last 5 s.",
    "agent.cpu_percent": "CPU of the agent's host in percent.",
    "agent.memory_percent": "Memory in use on the agent's host, in percent.",
    "agent.free_memory_bytes": "Free memory of the agent's host.",
    "agent.downloaders": "Active downloaders.",
}
metrics.group(
    {
        "agents.alive": "Agents whose last heartbeat is younger than 11 s.",
        "agents.silent": "Enabled agents that are not alive.",
        "agents.draining": "Alive agents that get no new runs.",
        "agents.disabled": "Disabled agents.",
    },
    _agents,
)
metrics.group(EACH, _each_agent, ("agent",))
metrics.gauge(
    "allocations.open", "Unreleased allocations.", ("project",), _allocations, absent_is_zero=True
)
watch_queues(_queues)
