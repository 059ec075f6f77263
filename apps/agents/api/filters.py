"""Filters of the list of agents."""

from __future__ import annotations

from typing import Any

import django_filters
from django.db.models import QuerySet
from django.utils import timezone

from apps.agents.models import Agent
from apps.agents.querysets import AgentQuerySet


class AgentFilter(django_filters.FilterSet):
    """``?alive=true&enabled=true&agent_id=…``."""

    alive = django_filters.BooleanFilter(method="filter_alive")

    class Meta:
        model = Agent
        fields = ["alive", "enabled", "agent_id"]

    def filter_alive(self, rows: AgentQuerySet[Agent], name: str, value: bool) -> QuerySet[Any]:
        """Heard of within the last 11 s, or not."""
        alive = Agent.objects.alive(timezone.now())
        return rows.filter(pk__in=alive) if value else rows.exclude(pk__in=alive)
