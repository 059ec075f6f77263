"""REST views of schedules and planned runs."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError as DjangoValidationError
from django.http import Http404
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.access.api.base import ApiView, ReadViewSet
from apps.access.api.fields import KnownFields
from apps.jobs.api.filters import PlannedRunFilter
from apps.jobs.engine.cron import validate_cron, validate_time_zone
from apps.jobs.engine.cron_words import cron_words
from apps.jobs.models import Job, PlannedRun
from apps.jobs.queries import schedule_facts, times_to_come


class NextTimeSerializer(serializers.Serializer[Any]):
    """Future time in the job's time zone and in UTC."""

    local = serializers.SerializerMethodField(help_text=_("In the job's time zone."))
    utc = serializers.DateTimeField()

    def get_local(self, row: Any) -> str:
        """Time in the job's time zone, with the UTC offset at that time."""
        return str(row.local.isoformat())


class PlannedRunSerializer(serializers.ModelSerializer[PlannedRun]):
    """Planned time of a job, and its outcome."""

    project = serializers.IntegerField(source="schedule.job.project_id", read_only=True)
    job = serializers.IntegerField(source="schedule.job_id", read_only=True)

    class Meta:
        model = PlannedRun
        fields = ["id", "project", "job", "planned_at", "outcome", "reason", "run", "decided_at"]
        read_only_fields = fields


class ScheduleSerializer(serializers.Serializer[Any]):
    """Schedule of a job."""

    cron = serializers.CharField(allow_blank=True)
    time_zone = serializers.CharField()
    active = serializers.BooleanField(
        help_text=_("Whether it has a cron expression and is enabled.")
    )
    next_times = NextTimeSerializer(many=True)
    planned_through = serializers.DateTimeField(
        allow_null=True, help_text=_("All planned times up to this one are processed.")
    )
    counts = serializers.DictField(
        child=serializers.IntegerField(), help_text=_("Planned runs by outcome.")
    )


class ScheduleQuestionSerializer(KnownFields, serializers.Serializer[Any]):
    """Cron expression to preview."""

    cron = serializers.CharField(max_length=100, default="", allow_blank=True)
    time_zone = serializers.CharField(max_length=50, default="UTC")

    def validate_cron(self, text: str) -> str:
        """Reject an invalid expression; the error names the field and the reason."""
        return _checked(validate_cron, text)

    def validate_time_zone(self, name: str) -> str:
        """Accept a time zone of the IANA database."""
        return _checked(validate_time_zone, name)


class ScheduleAnswerSerializer(serializers.Serializer[Any]):
    """Next times of a cron expression."""

    words = serializers.CharField(
        allow_blank=True, help_text=_("The expression in words, in the language of the request.")
    )
    next_times = NextTimeSerializer(many=True)


class JobScheduleView(ApiView):
    """The schedule of one job."""

    @extend_schema(operation_id="jobs_schedule_retrieve", responses=ScheduleSerializer)
    def get(self, request: Request, job: int) -> Response:
        """Return the schedule: next five times, in the job's zone and in UTC, and past outcomes."""
        row = Job.objects.visible_to(self.person).filter(pk=job).first()
        if row is None:
            raise Http404
        return Response(ScheduleSerializer(schedule_facts(row, now=timezone.now())).data)


class SchedulePreviewView(ApiView):
    """Preview of a cron expression. Read-only."""

    only_reads = True

    @extend_schema(
        operation_id="jobs_schedule_preview",
        request=ScheduleQuestionSerializer,
        responses=ScheduleAnswerSerializer,
    )
    def post(self, request: Request) -> Response:
        """Return the next five times; 400 names the error of the expression."""
        body = ScheduleQuestionSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        times = times_to_come(after=timezone.now(), **body.validated_data)
        words = cron_words(body.validated_data["cron"])
        return Response(ScheduleAnswerSerializer({"words": words, "next_times": times}).data)


class PlannedRunViewSet(ReadViewSet[PlannedRun]):
    """Planned runs, one for each planned time, newest first."""

    queryset = PlannedRun.objects.select_related("schedule__job")
    serializer_class = PlannedRunSerializer
    filterset_class = PlannedRunFilter


def _checked(validate: Any, text: str) -> str:
    try:
        validate(text)
    except DjangoValidationError as error:
        raise serializers.ValidationError(error.messages) from error
    return text
