"""Samples of agents: one row an agent a minute, deleted after a day."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from django.conf import settings

from apps.agents.models import Agent, AgentSample

# Rows deleted by one statement, so that locks are short.
CHUNK: Final = 5000


def sample(*, agents: Iterable[str], now: datetime) -> int:
    """Store a sample of those of ``agents`` (by agent id) that have none of this minute.

    Returns how many were due. One query, two more if some are. Several centers may do this at
    once.
    """
    minute = now.replace(second=0, microsecond=0)
    due = list(Agent.objects.filter(agent_id__in=list(agents)).without_sample_of(minute))
    if not due:
        return 0
    rows = [
        AgentSample(
            agent=agent,
            at=minute,
            cpu_percent=agent.cpu_percent,
            free_memory_bytes=agent.free_memory_bytes,
            downloaders=agent.downloaders,
            qps=agent.qps,
        )
        for agent in due
    ]
    AgentSample.objects.bulk_create(rows, batch_size=1000, ignore_conflicts=True)
    Agent.objects.filter(pk__in=[agent.pk for agent in due]).update(sampled_at=minute)
    return len(due)


def prune_samples(*, now: datetime) -> int:
    """Delete samples older than ``AGENT_HISTORY_HOURS``; return their number. Idempotent."""
    old = AgentSample.objects.filter(at__lt=now - timedelta(hours=settings.AGENT_HISTORY_HOURS))
    total = 0
    while ids := list(old.values_list("pk", flat=True)[:CHUNK]):
        deleted, _by_model = AgentSample.objects.filter(pk__in=ids).delete()
        if not deleted:
            break
        total += deleted
    return total
