"""Jobs and runs over REST. Each action is one call of a service."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer

from apps.access.api.base import ReadViewSet, WriteViewSet
from apps.access.api.idempotency import idempotent
from apps.access.states import Role
from apps.jobs import services
from apps.jobs.api.filters import JobFilter, RunFilter
from apps.jobs.api.serializers import (
    JobSerializer,
    RunDetailSerializer,
    RunSerializer,
    StartSerializer,
)
from apps.jobs.models import Job, Run


class JobViewSet(WriteViewSet[Job]):
    """Jobs. Editors change them, operators start them."""

    queryset = Job.objects.select_related("project")
    serializer_class = JobSerializer
    filterset_class = JobFilter
    required_roles = {"start": Role.OPERATOR}

    def create_object(self, values: dict[str, Any]) -> Job:
        """One call."""
        return services.create_job(values=values, actor=self.person)

    def update_object(self, obj: Job, values: dict[str, Any]) -> Job:
        """One call."""
        return services.update_job(job=obj, values=values, actor=self.person)

    def delete_object(self, obj: Job) -> None:
        """One call; a job that has runs stays, with 409."""
        services.delete_job(job=obj, actor=self.person)

    @extend_schema(request=StartSerializer, responses={201: RunSerializer})
    @action(detail=True, methods=["post"])
    @idempotent
    def start(self, request: Request, pk: str | None = None) -> Response:
        """Queue a run. 409 when the job is disabled."""
        job = self.get_object()
        body = StartSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        run = services.start_run(
            job=job,
            now=timezone.now(),
            actor=self.person,
            arguments=body.validated_data.get("arguments"),
        )
        shown = RunSerializer(run, context=self.get_serializer_context())
        return Response(shown.data, status=status.HTTP_201_CREATED)


class RunViewSet(ReadViewSet[Run]):
    """Runs, newest first."""

    queryset = Run.objects.select_related("job")
    serializer_class = RunSerializer
    filterset_class = RunFilter
    required_roles = {"stop": Role.OPERATOR}

    def get_queryset(self) -> Any:
        """A single run comes with its moves."""
        rows = super().get_queryset()
        return rows.prefetch_related("moves") if self.action == "retrieve" else rows

    def get_serializer_class(self) -> type[BaseSerializer[Run]]:
        """A single run comes with its moves."""
        return RunDetailSerializer if self.action == "retrieve" else RunSerializer

    @extend_schema(request=None, responses=RunSerializer)
    @action(detail=True, methods=["post"])
    @idempotent
    def stop(self, request: Request, pk: str | None = None) -> Response:
        """Ask the run to stop. 409 when it has ended or is already stopping."""
        run = self.get_object()
        services.stop_run(run=run, now=timezone.now(), actor=self.person)
        return self.answer(run)
