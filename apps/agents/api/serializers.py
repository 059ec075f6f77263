"""Serializers of agents and allocations."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.access.api.fields import VisibleRelatedField
from apps.agents.models import Agent, AgentSample, Allocation
from apps.agents.queries import Considered, run_of
from apps.agents.states import AgentMode, UnavailableReason, is_alive, refusal_text
from apps.jobs.models import DownloaderKind, DownloadPolicy, Job


class AgentSerializer(serializers.ModelSerializer[Agent]):
    """A download agent as it last described itself; only ``mode`` can be changed."""

    alive = serializers.SerializerMethodField(
        help_text="Whether the last heartbeat is younger than 11 s."
    )
    labels = serializers.SerializerMethodField()
    types = serializers.ListField(
        child=serializers.CharField(), help_text="The types of downloader it can make."
    )
    problems = serializers.ListField(
        child=serializers.CharField(), help_text="What its owner should look at."
    )

    class Meta:
        model = Agent
        fields = [
            "id",
            "agent_id",
            "name",
            "alive",
            "mode",
            "switched_at",
            "types",
            "problems",
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
        read_only_fields = fields

    def get_alive(self, agent: Agent) -> bool:
        """Judge by this server's clock."""
        return is_alive(agent.heartbeat_at, timezone.now())

    @extend_schema_field({"type": "object", "additionalProperties": {"type": "string"}})
    def get_labels(self, agent: Agent) -> dict[str, Any]:
        return dict(agent.labels)


class ModeSerializer(serializers.Serializer[Any]):
    """Mode of an agent."""

    mode = serializers.ChoiceField(
        choices=AgentMode.choices,
        help_text="A draining agent gets no new runs, a disabled one is sent nothing more.",
    )


class ExitSerializer(serializers.Serializer[Any]):
    """Reason of an exit."""

    reason = serializers.CharField(
        required=False, allow_blank=True, max_length=200, help_text="For the trail and its log."
    )


class AgentSampleSerializer(serializers.ModelSerializer[AgentSample]):
    """Figures of an agent in one minute."""

    class Meta:
        model = AgentSample
        fields = ["id", "at", "cpu_percent", "free_memory_bytes", "downloaders", "qps"]
        read_only_fields = fields


class AllocationSerializer(serializers.ModelSerializer[Allocation]):
    """Agents that serve one owner."""

    run = serializers.SerializerMethodField(help_text="The run that owns it, if a run does.")
    type = serializers.CharField(
        source="downloader_type", read_only=True, help_text="The type of downloader."
    )
    agents: serializers.ManyRelatedField = serializers.SlugRelatedField(  # type: ignore[assignment]
        slug_field="agent_id", many=True, read_only=True, help_text="Their agent ids."
    )

    class Meta:
        model = Allocation
        fields = [
            "id",
            "project",
            "owner",
            "run",
            "policy",
            "type",
            "asked",
            "warning",
            "agents",
            "created_at",
            "released_at",
        ]
        read_only_fields = fields

    def get_run(self, allocation: Allocation) -> int | None:
        return run_of(allocation)


class PreviewRequestSerializer(serializers.Serializer[Any]):
    """A job, or its parameters that affect the agents."""

    job = VisibleRelatedField(queryset=Job.objects.all(), required=False)
    policy = serializers.ChoiceField(choices=DownloadPolicy.choices, required=False)
    agents = serializers.IntegerField(min_value=0, max_value=10_000, required=False)
    type = serializers.ChoiceField(choices=DownloaderKind.choices, required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Fill missing fields from the job, else with defaults."""
        job = attrs.get("job") or Job()
        return {"policy": job.policy, "agents": job.agents, "type": job.downloader} | attrs


class RefusedAgentSerializer(serializers.Serializer[Any]):
    """An agent that would not be given."""

    id = serializers.IntegerField(source="agent.pk")
    agent_id = serializers.CharField(source="agent.agent_id")
    name = serializers.CharField(source="agent.name")
    code = serializers.ChoiceField(source="refusal", choices=UnavailableReason.choices)
    reason = serializers.SerializerMethodField()
    heartbeat_at = serializers.DateTimeField(source="agent.heartbeat_at", allow_null=True)

    def get_reason(self, considered: Considered) -> str:
        """Return the reason as text."""
        if considered.refusal is None:
            return ""
        return str(refusal_text(considered.refusal, self.context["type"]))


class PreviewSerializer(serializers.Serializer[Any]):
    """Agents a run would be given now; ``given`` of ``eligible`` are drawn at random."""

    policy = serializers.ChoiceField(choices=DownloadPolicy.choices)
    type = serializers.ChoiceField(source="wanted_type", choices=DownloaderKind.choices)
    asked = serializers.IntegerField(help_text="How many the run asks for; 0 is all.")
    given = serializers.IntegerField(help_text="How many it would get.")
    warning = serializers.CharField(help_text="Why fewer than asked for, if so.")
    refusal = serializers.CharField(help_text="Why none, if so: the run would fail to start.")
    eligible = AgentSerializer(many=True)
    refused = RefusedAgentSerializer(many=True)


class AllocatedAgentsSerializer(serializers.Serializer[Any]):
    """Agents of a run's newest allocation, open or released."""

    policy = serializers.CharField(help_text="How they were chosen; empty before any were.")
    asked = serializers.IntegerField(help_text="How many the run asked for; 0 is all.")
    warning = serializers.CharField(help_text="Why there are fewer than asked for, if so.")
    released_at = serializers.DateTimeField(allow_null=True)
    agents = AgentSerializer(many=True)
