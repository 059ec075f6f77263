"""Filters of the lists of agents and of allocations."""

from __future__ import annotations

from typing import Any

import django_filters
from django.db.models import QuerySet
from django.utils import timezone

from apps.access.api.filters import BooleanFilter, FilterSet, IdFilter
from apps.agents.models import Agent, AgentSample, Allocation
from apps.agents.querysets import AgentQuerySet
from apps.agents.states import AgentMode


class AgentFilter(FilterSet):
    """``?alive=true&mode=draining&agent_id=…``."""

    alive = BooleanFilter(method="filter_alive")
    mode = django_filters.MultipleChoiceFilter(choices=AgentMode.choices, distinct=False)

    class Meta:
        model = Agent
        fields = ["alive", "mode", "agent_id"]

    def filter_alive(self, rows: AgentQuerySet[Agent], name: str, value: bool) -> QuerySet[Any]:
        """Select by a heartbeat within the last 11 s."""
        alive = Agent.objects.alive(timezone.now())
        return rows.filter(pk__in=alive) if value else rows.exclude(pk__in=alive)


class SampleFilter(FilterSet):
    """``?since=2026-03-01T12:00:00Z``."""

    since = django_filters.IsoDateTimeFilter(field_name="at", lookup_expr="gte")

    class Meta:
        model = AgentSample
        fields = ["since"]


class AllocationFilter(FilterSet):
    """``?open=true&project=1&run=7&agent=3``."""

    open = BooleanFilter(field_name="released_at", lookup_expr="isnull")
    project = IdFilter(field_name="project_id")
    run = IdFilter(method="filter_run")
    agent = IdFilter(method="filter_agent")

    class Meta:
        model = Allocation
        fields = ["open", "project", "run", "agent"]

    def filter_run(self, rows: QuerySet[Any], name: str, value: Any) -> QuerySet[Any]:
        return rows.filter(owner=f"run:{int(value)}")

    def filter_agent(self, rows: QuerySet[Any], name: str, value: Any) -> QuerySet[Any]:
        """Select by the agent's row id."""
        return rows.filter(agents=int(value))
