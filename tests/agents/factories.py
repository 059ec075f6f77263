"""Agents and allocations to test with."""

from __future__ import annotations

from datetime import timedelta
from itertools import count
from typing import Any

from django.utils import timezone

from apps.agents.models import Agent, Allocation
from apps.jobs.models import Run

_numbers = count(1)


def make_agent(*, silent_seconds: float = 0.0, **fields: Any) -> Agent:
    """An agent whose last heartbeat is so old."""
    number = next(_numbers)
    values = {
        "agent_id": f"agent{number}",
        "name": f"north-{number}",
        "boot": "1",
        "processors": 4,
        "total_memory_bytes": 8 << 30,
        "free_memory_bytes": 3 << 30,
        "cpu_percent": 17.4,
        "downloaders": 2,
        "qps": 41.25,
        "heartbeat_at": timezone.now() - timedelta(seconds=silent_seconds),
    }
    return Agent.objects.create(**(values | fields))


def make_allocation(run: Run, *agents: Agent, **fields: Any) -> Allocation:
    """The allocation of a run."""
    values = {
        "project": run.job.project,
        "owner": run.owner,
        "reply_to": "x",
        "policy": "random",
        "created_at": timezone.now(),
    }
    allocation = Allocation.objects.create(**(values | fields))
    allocation.agents.set(agents)
    return allocation
