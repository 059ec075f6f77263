"""Jobs and runs as REST shows them."""

from __future__ import annotations

import math
from typing import Any

from django.utils.translation import gettext_lazy as _
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.access.api.fields import VisibleRelatedField
from apps.access.states import Role
from apps.jobs.arguments import check_arguments
from apps.jobs.models import Job, Run, RunMove
from apps.projects.models import Project

MAX_SPEED = 1_000_000.0


@extend_schema_field({"type": "object", "additionalProperties": {}})
class ArgumentsField(serializers.JSONField):
    """A JSON object that every store can hold."""

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        """The object; a refusal names the path to what is wrong."""
        return check_arguments(super().to_internal_value(data))


class SpeedField(serializers.FloatField):
    """Requests a second, 0 for no limit."""

    default_error_messages = {"not_finite": _("A finite number is needed.")}

    def to_internal_value(self, data: Any) -> float:
        """A finite number; JSON can write others."""
        value = super().to_internal_value(data)
        if not math.isfinite(value):
            self.fail("not_finite")
        return value


class JobSerializer(serializers.ModelSerializer[Job]):
    """What to run, and how fast."""

    project = VisibleRelatedField(queryset=Project.objects.all(), at_least=Role.EDITOR)
    arguments = ArgumentsField(required=False, help_text=_("A JSON object the spider receives."))
    speed = SpeedField(
        required=False,
        min_value=0,
        max_value=MAX_SPEED,
        help_text=_("requests a second; 0 is unlimited, 0.1 is one every ten seconds"),
    )

    class Meta:
        model = Job
        fields = [
            "id",
            "project",
            "name",
            "spider",
            "arguments",
            "speed",
            "concurrency",
            "policy",
            "enabled",
            "notes",
            "created_at",
            "updated_at",
        ]


class StartSerializer(serializers.Serializer[Any]):
    """What a start may change."""

    arguments = ArgumentsField(
        required=False, help_text=_("Laid over the job's own arguments, for this run alone.")
    )


class RunSerializer(serializers.ModelSerializer[Run]):
    """One execution of a job."""

    project = serializers.IntegerField(source="job.project_id", read_only=True)
    job_name = serializers.CharField(source="job.name", read_only=True)
    active = serializers.BooleanField(
        source="is_active", read_only=True, help_text=_("Not in a final state.")
    )
    arguments = ArgumentsField(read_only=True)

    class Meta:
        model = Run
        fields = [
            "id",
            "project",
            "job",
            "job_name",
            "state",
            "active",
            "reason",
            "arguments",
            "requested_by",
            "host",
            "exit_code",
            "created_at",
            "started_at",
            "ended_at",
        ]
        read_only_fields = fields


class RunMoveSerializer(serializers.ModelSerializer[RunMove]):
    """One move of a run; ``from_state`` is empty for the first."""

    class Meta:
        model = RunMove
        fields = ["from_state", "to_state", "at", "actor", "reason"]
        read_only_fields = fields


class RunDetailSerializer(RunSerializer):
    """A run with its moves, oldest first."""

    moves = RunMoveSerializer(many=True, read_only=True)

    class Meta(RunSerializer.Meta):
        fields = [*RunSerializer.Meta.fields, "moves"]
        read_only_fields = fields
