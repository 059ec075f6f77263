"""REST serializers of runs."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext_lazy as _
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.access.api.fields import KnownFields
from apps.jobs.api.job_fields import FiniteField
from apps.jobs.arguments import check_arguments
from apps.jobs.models import MAX_CONCURRENCY, MAX_SPEED, Run, RunCommand, RunMove
from apps.jobs.states import OverlapPolicy, RunAsk, RunOutcome


@extend_schema_field({"type": "object", "additionalProperties": {}})
class ArgumentsField(serializers.JSONField):
    """A JSON object without values that a database cannot store, such as NUL characters."""

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        """Return the object; an error names the path to the invalid value."""
        return check_arguments(super().to_internal_value(data))


class StartSerializer(KnownFields, serializers.Serializer[Any]):
    """Options to start a run."""

    arguments = ArgumentsField(
        required=False, help_text=_("Override the job's own arguments, for this run only.")
    )
    overlap = serializers.ChoiceField(
        choices=OverlapPolicy.choices,
        required=False,
        help_text=_("Overlap policy for this start, instead of the job's own."),
    )


class RunSerializer(serializers.ModelSerializer[Run]):
    """Run of a job."""

    project = serializers.IntegerField(source="job.project_id", read_only=True)
    job_name = serializers.CharField(source="job.name", read_only=True)
    active = serializers.BooleanField(
        source="is_active", read_only=True, help_text=_("Not in a final state.")
    )
    outcome = serializers.ChoiceField(
        choices=RunOutcome.choices,
        read_only=True,
        allow_null=True,
        help_text=_("How it ended; null while it is active."),
    )
    arguments = ArgumentsField(read_only=True)
    planned_at = serializers.DateTimeField(
        source="plan.planned_at",
        read_only=True,
        allow_null=True,
        default=None,
        help_text=_("Planned time of a scheduled run."),
    )

    class Meta:
        model = Run
        fields = [
            "id",
            "project",
            "job",
            "job_name",
            "state",
            "active",
            "outcome",
            "reason",
            "arguments",
            "trigger",
            "requested_by",
            "attempt",
            "retry_of",
            "requests_of",
            "replay_of",
            "replay_missing",
            "caused_by",
            "planned_at",
            "not_before",
            "waits_for",
            "waiting_reason",
            "image",
            "image_reference",
            "image_digest",
            "priority",
            "host",
            "container",
            "restarts",
            "frozen",
            "exit_code",
            "requests_total",
            "requests_failed",
            "items",
            "exceptions",
            "failed_checks",
            "created_at",
            "placed_at",
            "started_at",
            "ended_at",
        ]
        read_only_fields = fields


class RunMoveSerializer(serializers.ModelSerializer[RunMove]):
    """State change of a run; `from_state` is empty for the first."""

    class Meta:
        model = RunMove
        fields = ["from_state", "to_state", "at", "actor", "reason"]
        read_only_fields = fields


class TuneSerializer(KnownFields, serializers.Serializer[Any]):
    """New window or speed of a run, or both."""

    concurrency = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=MAX_CONCURRENCY,
        help_text=_("Requests that may be unanswered at once."),
    )
    speed = FiniteField(
        required=False,
        min_value=0,
        max_value=MAX_SPEED,
        help_text=_("Requests per second; 0 is unlimited, 0.1 is one every ten seconds."),
    )


class RunCommandSerializer(serializers.ModelSerializer[RunCommand]):
    """Command to a run, and its answer; `answered_at` is null until the run answers."""

    class Meta:
        model = RunCommand
        fields = [
            "id",
            "action",
            "settings",
            "asked_by",
            "asked_at",
            "answered_at",
            "accepted",
            "answer",
        ]
        read_only_fields = fields


class RunDetailSerializer(RunSerializer):
    """Run with its state changes, oldest first, and the actions that its state allows."""

    moves = RunMoveSerializer(many=True, read_only=True)
    allowed = serializers.ListField(
        child=serializers.ChoiceField(choices=RunAsk.choices),
        read_only=True,
        help_text=_("Actions that are allowed now; `stop` sends `exit`."),
    )

    class Meta(RunSerializer.Meta):
        fields = [*RunSerializer.Meta.fields, "moves", "allowed"]
        read_only_fields = fields


class RefusalSerializer(serializers.Serializer[Any]):
    """Refused action on one run, with the reason."""

    run = serializers.IntegerField(read_only=True)
    code = serializers.CharField(read_only=True)
    detail = serializers.CharField(read_only=True)


class TallySerializer(serializers.Serializer[Any]):
    """Result of an action on many runs: IDs of runs that accepted it, and the refusals."""

    done = serializers.ListField(child=serializers.IntegerField(), read_only=True)
    refused = RefusalSerializer(many=True, read_only=True)
