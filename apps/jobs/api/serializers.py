"""Jobs and runs as REST shows them."""

from __future__ import annotations

import json
import math
from typing import Any

from django.utils.translation import gettext_lazy as _
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.access.api.fields import VisibleRelatedField
from apps.access.states import Role
from apps.jobs.arguments import check_arguments
from apps.jobs.models import OPTIONS, Job, Run, RunMove, check_cookies, contradictions
from apps.jobs.models.options import MAX_TIMEOUT_SECONDS
from apps.jobs.models.validators import MAX_RULES, validate_cut_rules
from apps.projects.models import Project

MAX_SPEED = 1_000_000.0


@extend_schema_field({"type": "object", "additionalProperties": {}})
class ArgumentsField(serializers.JSONField):
    """A JSON object that every store can hold."""

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        """The object; a refusal names the path to what is wrong."""
        return check_arguments(super().to_internal_value(data))


class FiniteField(serializers.FloatField):
    """A number, neither infinite nor none."""

    default_error_messages = {"not_finite": _("A finite number is needed.")}

    def to_internal_value(self, data: Any) -> float:
        """A finite number; JSON can write others."""
        value = super().to_internal_value(data)
        if not math.isfinite(value):
            self.fail("not_finite")
        return value


@extend_schema_field(
    {
        "type": "array",
        "maxItems": MAX_RULES,
        "items": {
            "type": "object",
            "properties": {
                "start": {"type": "string"},
                "end": {"type": "string"},
                "pattern": {"type": "string", "description": "RE2"},
                "start_offset": {"type": "integer"},
                "end_offset": {"type": "integer"},
                "trim": {"type": "boolean"},
            },
            "additionalProperties": False,
        },
    }
)
class CutRulesField(serializers.JSONField):
    """A list of cut rules; the model's validator says which one is wrong."""


@extend_schema_field({"type": "object", "additionalProperties": {"type": "string"}})
class CookiesField(serializers.JSONField):
    """Names and values, taken and never given back; an empty object removes those stored."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "write_only": True})

    def to_internal_value(self, data: Any) -> Any:
        """The object as JSON text, as the model stores it."""
        cookies = check_cookies(super().to_internal_value(data))
        return json.dumps(cookies) if cookies else ""


class JobSerializer(serializers.ModelSerializer[Job]):
    """What to run, how fast, and how its pages are fetched."""

    project = VisibleRelatedField(queryset=Project.objects.all(), at_least=Role.EDITOR)
    arguments = ArgumentsField(required=False, help_text=_("A JSON object the spider receives."))
    speed = FiniteField(
        required=False,
        min_value=0,
        max_value=MAX_SPEED,
        help_text=_("requests a second; 0 is unlimited, 0.1 is one every ten seconds"),
    )
    timeout_seconds = FiniteField(
        required=False, min_value=0.1, max_value=MAX_TIMEOUT_SECONDS, help_text=_("of a download")
    )
    request_timeout_seconds = FiniteField(
        required=False,
        allow_null=True,
        min_value=0.1,
        max_value=3600.0,
        help_text=_("until the spider sends a request again; null is the spider's own"),
    )
    cut = CutRulesField(required=False, validators=[validate_cut_rules])
    cookies = CookiesField(
        required=False, help_text=_("Sent from the start. Sealed, never given back.")
    )
    cookies_set = serializers.SerializerMethodField(help_text=_("Whether there are cookies."))

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
            *OPTIONS,
            "cookies_set",
            "enabled",
            "notes",
            "created_at",
            "updated_at",
        ]

    def get_cookies_set(self, job: Job) -> bool:
        """Without opening them."""
        return bool(job.__dict__["cookies"])

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """What two fields say together, with those that stay as they are."""
        stored = vars(self.instance) if self.instance is not None else vars(Job())
        if errors := contradictions({**stored, **attrs}):
            raise serializers.ValidationError(dict(errors))
        return attrs


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
