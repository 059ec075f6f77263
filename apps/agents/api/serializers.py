"""Agents as REST shows them."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.agents.models import Agent
from apps.agents.states import is_alive


class AgentSerializer(serializers.ModelSerializer[Agent]):
    """A downloader process as it last described itself; only ``enabled`` can be changed."""

    alive = serializers.SerializerMethodField(
        help_text="Whether the last heartbeat is younger than 11 s."
    )
    labels = serializers.SerializerMethodField()

    class Meta:
        model = Agent
        fields = [
            "id",
            "agent_id",
            "name",
            "alive",
            "enabled",
            "cpu_percent",
            "processors",
            "total_memory_bytes",
            "free_memory_bytes",
            "downloaders",
            "qps",
            "labels",
            "version",
            "registered_at",
            "heartbeat_at",
        ]
        read_only_fields = [name for name in fields if name != "enabled"]

    def get_alive(self, agent: Agent) -> bool:
        """By this server's clock."""
        return is_alive(agent.heartbeat_at, timezone.now())

    @extend_schema_field({"type": "object", "additionalProperties": {"type": "string"}})
    def get_labels(self, agent: Agent) -> dict[str, Any]:
        """As the agent reports them."""
        return dict(agent.labels)


class EnableSerializer(serializers.Serializer[Any]):
    """The one thing of an agent that a person decides."""

    enabled = serializers.BooleanField(help_text="A disabled agent gets no new runs.")


class AllocatedAgentsSerializer(serializers.Serializer[Any]):
    """The agents of a run's newest allocation, open or given back."""

    policy = serializers.CharField(help_text="How they were chosen; empty before any were.")
    asked = serializers.IntegerField(help_text="How many the run asked for; 0 is all.")
    warning = serializers.CharField(help_text="Why there are fewer than asked for, if so.")
    released_at = serializers.DateTimeField(allow_null=True)
    agents = AgentSerializer(many=True)
