"""REST views of runs, and actions on runs."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer

from apps.access.api.base import ReadViewSet
from apps.access.api.idempotency import idempotent
from apps.access.states import Role
from apps.jobs import services
from apps.jobs.api.filters import RunFilter
from apps.jobs.api.serializers import (
    RunCommandSerializer,
    RunDetailSerializer,
    RunSerializer,
    StartSerializer,
    TallySerializer,
    TuneSerializer,
)
from apps.jobs.models import Run
from apps.jobs.states import RunAsk


class JobRunsMixin:
    """Mixin with the actions of a job on its runs."""

    @extend_schema(
        request=StartSerializer,
        responses={201: RunSerializer},
        examples=[
            OpenApiExample("As the job says", value={}, request_only=True),
            OpenApiExample("With arguments", value={"arguments": {"pages": 3}}, request_only=True),
        ],
    )
    @action(detail=True, methods=["post"])
    @idempotent
    def start(self: Any, request: Request, pk: str | None = None) -> Response:
        """Queue a run of the job.

        409 if the job is disabled, has an active run and allows no other, or has a full queue.
        """
        job = self.get_object()
        body = StartSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        run = services.start_run(
            job=job,
            now=timezone.now(),
            actor=self.person,
            arguments=body.validated_data.get("arguments"),
            overlap=body.validated_data.get("overlap"),
        )
        shown = RunSerializer(run, context=self.get_serializer_context())
        return Response(shown.data, status=status.HTTP_201_CREATED)

    @extend_schema(request=None, responses=TallySerializer)
    @action(detail=True, methods=["post"])
    @idempotent
    def pause(self: Any, request: Request, pk: str | None = None) -> Response:
        """Pause every active run of the job."""
        tally = services.pause_job(job=self.get_object(), now=timezone.now(), actor=self.person)
        return Response(TallySerializer(tally).data)

    @extend_schema(request=None, responses=TallySerializer)
    @action(detail=True, methods=["post"])
    @idempotent
    def resume(self: Any, request: Request, pk: str | None = None) -> Response:
        """Resume every paused run of the job."""
        tally = services.resume_job(job=self.get_object(), now=timezone.now(), actor=self.person)
        return Response(TallySerializer(tally).data)

    @extend_schema(request=None, responses=TallySerializer)
    @action(detail=True, methods=["post"])
    @idempotent
    def stop(self: Any, request: Request, pk: str | None = None) -> Response:
        """Stop every active run of the job; queued runs are cancelled at once."""
        tally = services.stop_job(job=self.get_object(), now=timezone.now(), actor=self.person)
        return Response(TallySerializer(tally).data)


class RunViewSet(ReadViewSet[Run]):
    """Runs, newest first. The commands of a run show requested actions and the run's answers."""

    queryset = Run.objects.select_related("job__project", "plan")
    serializer_class = RunSerializer
    filterset_class = RunFilter
    required_roles = dict.fromkeys(
        ("stop", "pause", "resume", "restart", "freeze", "thaw", "tune"), Role.OPERATOR
    )

    def get_queryset(self) -> Any:
        """Load the state changes of a single run."""
        rows = super().get_queryset()
        return rows.prefetch_related("moves") if self.action == "retrieve" else rows

    def get_serializer_class(self) -> type[BaseSerializer[Run]]:
        """Use the serializer with state changes for a single run."""
        return RunDetailSerializer if self.action == "retrieve" else RunSerializer

    @extend_schema(request=None, responses=RunSerializer)
    @action(detail=True, methods=["post"])
    @idempotent
    def stop(self, request: Request, pk: str | None = None) -> Response:
        """Stop the run. 409 if it has ended or is already stopping."""
        return self._ask(RunAsk.EXIT)

    @extend_schema(request=None, responses=RunSerializer)
    @action(detail=True, methods=["post"])
    @idempotent
    def pause(self, request: Request, pk: str | None = None) -> Response:
        """Pause the run: it sends no new requests until it is resumed.

        409 if the run is not in the state running.
        """
        return self._ask(RunAsk.PAUSE)

    @extend_schema(request=None, responses=RunSerializer)
    @action(detail=True, methods=["post"])
    @idempotent
    def resume(self, request: Request, pk: str | None = None) -> Response:
        """Resume a paused run; a frozen run is thawed. 409 if it is not paused."""
        return self._ask(RunAsk.RESUME)

    @extend_schema(request=None, responses=RunSerializer)
    @action(detail=True, methods=["post"])
    @idempotent
    def restart(self, request: Request, pk: str | None = None) -> Response:
        """Stop the run and start it again on the same host. 409 if it has not started."""
        return self._ask(RunAsk.RESTART)

    @extend_schema(request=None, responses=RunSerializer)
    @action(detail=True, methods=["post"])
    @idempotent
    def freeze(self, request: Request, pk: str | None = None) -> Response:
        """Freeze a run that does not answer: its host suspends the container or process."""
        return self._ask(RunAsk.FREEZE)

    @extend_schema(request=None, responses=RunSerializer)
    @action(detail=True, methods=["post"])
    @idempotent
    def thaw(self, request: Request, pk: str | None = None) -> Response:
        """Thaw a frozen run: its host resumes the container or process. 409 if it is not frozen."""
        return self._ask(RunAsk.THAW)

    @extend_schema(request=TuneSerializer, responses=RunSerializer)
    @action(detail=True, methods=["post"])
    @idempotent
    def tune(self, request: Request, pk: str | None = None) -> Response:
        """Change the window or speed of an active run; 409 if it is not active.

        The answer to the command contains the new settings, or the reason of a refusal.
        """
        run = self.get_object()
        body = TuneSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        services.tune_run(run=run, **body.validated_data, now=timezone.now(), actor=self.person)
        return self.answer(run)

    @extend_schema(responses=RunCommandSerializer(many=True), filters=False)
    @action(detail=True, methods=["get"], filterset_class=None)
    def commands(self, request: Request, pk: str | None = None) -> Response:
        """Commands to the run with its answers, newest first."""
        commands: Any = self.get_object().commands.all()
        rows: Any = self.paginate_queryset(commands)
        return self.get_paginated_response(RunCommandSerializer(rows, many=True).data)

    def _ask(self, what: RunAsk) -> Response:
        run = self.get_object()
        services.act_on_run(run=run, action=what, now=timezone.now(), actor=self.person)
        return self.answer(run)
