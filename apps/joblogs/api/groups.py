"""REST API of error groups."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.access.api.base import ReadViewSet
from apps.access.api.idempotency import idempotent
from apps.access.states import Role
from apps.joblogs.api.filters import ErrorGroupFilter
from apps.joblogs.models import ErrorGroup
from apps.joblogs.services import LineCounts, count_groups, ignore_group, watch_group

# Number of groups whose errors are counted in one answer.
MOST_COUNTED = 1000


class CountedSerializer(serializers.Serializer[Any]):
    """Start of the period in which errors are counted."""

    counted_since = serializers.DateTimeField(
        required=False, help_text="Count the errors of each kind since then: `count` and `logs`."
    )


class ErrorGroupSerializer(serializers.ModelSerializer[ErrorGroup]):
    """Error group. Its lines: `/logs?job=…&fingerprint=…`."""

    image = serializers.IntegerField(
        source="first_image_id", allow_null=True, help_text="Of the run in which it first was."
    )
    ignored_by = serializers.CharField(source="ignored_by.username", default=None, allow_null=True)
    count = serializers.SerializerMethodField(
        help_text=f"Null unless counted_since is given; of the {MOST_COUNTED} kinds seen last."
    )
    logs = serializers.SerializerMethodField(help_text="In how many runs or builds; likewise.")

    class Meta:
        model = ErrorGroup
        fields = [
            "id",
            "project",
            "job",
            "fingerprint",
            "level",
            "source",
            "sample",
            "state",
            "first_at",
            "first_run",
            "image",
            "last_at",
            "last_run",
            "ignored_by",
            "ignored_at",
            "count",
            "logs",
        ]
        read_only_fields = fields

    def get_count(self, group: ErrorGroup) -> int | None:
        """Return the number of errors."""
        counted = self._counted(group)
        return counted[0] if counted else None

    def get_logs(self, group: ErrorGroup) -> int | None:
        """Return the number of logs with such errors."""
        counted = self._counted(group)
        return counted[1] if counted else None

    def _counted(self, group: ErrorGroup) -> tuple[int, int] | None:
        counts: LineCounts | None = self.context.get("counts")
        if counts is None:
            return None
        return counts.of((group.project_id, group.job_id or 0, group.fingerprint))


class ErrorGroupViewSet(ReadViewSet[ErrorGroup]):
    """Groups of similar errors, the latest first."""

    queryset = ErrorGroup.objects.select_related("ignored_by")
    serializer_class = ErrorGroupSerializer
    filterset_class = ErrorGroupFilter
    ordering = ("-last_at", "-id")
    required_roles = {"ignore": Role.OPERATOR, "watch": Role.OPERATOR}

    @extend_schema(parameters=[CountedSerializer])
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """List error groups with counts since `since`."""
        page = self.paginate_queryset(self.filter_queryset(self.get_queryset())) or []
        serializer = CountedSerializer(data=request.query_params)
        serializer.is_valid(raise_exception=True)
        context = dict(self.get_serializer_context())
        since: datetime | None = serializer.validated_data.get("counted_since")
        if since is not None and page:
            projects = {group.project_id for group in page}
            context["counts"] = count_groups(projects, since=since, limit=MOST_COUNTED)
        shown = ErrorGroupSerializer(page, many=True, context=context)
        return self.get_paginated_response(shown.data)

    @extend_schema(request=None, responses=ErrorGroupSerializer)
    @action(detail=True, methods=["post"])
    @idempotent
    def ignore(self, request: Request, pk: str) -> Response:
        """Ignore the group: it is still counted and searchable, but raises no alert. Idempotent."""
        group = self.get_object()
        ignore_group(group=group, actor=self.person, now=timezone.now())
        group.refresh_from_db()
        return self.answer(group)

    @extend_schema(request=None, responses=ErrorGroupSerializer)
    @action(detail=True, methods=["post"])
    @idempotent
    def watch(self, request: Request, pk: str) -> Response:
        """Reopen an ignored group. Idempotent."""
        group = self.get_object()
        watch_group(group=group, actor=self.person)
        group.refresh_from_db()
        return self.answer(group)
