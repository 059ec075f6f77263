"""The machinery over REST: dead letters, the outbox, processes, what beat wakes.

Messages may carry anything of any project: they are for those who see everything, and what is done
with them for superusers.
"""

from __future__ import annotations

from typing import Any, ClassVar, Generic, TypeVar, cast

from django.db.models import Model, QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer

from apps.access.api.base import ReadViewSet
from apps.access.api.etags import etag_of, require_match
from apps.access.api.idempotency import idempotent
from apps.access.api.permissions import InsideScopes, RulesEverything
from apps.dashboard import services
from apps.dashboard.api.filters import DaemonFilter, DeadLetterFilter, OutboxFilter
from apps.dashboard.api.machinery_serializers import (
    DaemonSerializer,
    DeadLetterDetailSerializer,
    DeadLetterSerializer,
    OutboxMessageDetailSerializer,
    OutboxMessageSerializer,
    PeriodicTaskSerializer,
    beat_model,
)
from apps.runtime.models import Daemon, DeadLetter, OutboxMessage
from apps.runtime.queries import database_now

M = TypeVar("M", bound=Model)


class _MachineryViewSet(ReadViewSet[M], Generic[M]):
    """Of no project: seen by those who see everything, changed by superusers."""

    permission_classes = (InsideScopes, RulesEverything)
    # By itself it may have more than in the list, where bodies would fill the memory.
    detail_class: ClassVar[type[BaseSerializer[Any]] | None] = None

    def get_queryset(self) -> QuerySet[M]:
        """All of them."""
        rows: QuerySet[M] = self.rows()
        return rows.defer("body") if self.detail_class and self.action == "list" else rows

    def rows(self) -> QuerySet[M]:
        """What there is, apart from who asks."""
        return cast("QuerySet[M]", self.queryset).all()  # type: ignore[arg-type]  # DRF's stubs

    def asked(self, request: Request) -> M:
        """The one that the address names; 412 when If-Match names another state of it."""
        obj = self.get_object()
        require_match(request, etag_of(obj, self.get_serializer(obj).data))
        return obj

    def get_serializer_class(self) -> type[BaseSerializer[M]]:
        """One by itself with its body."""
        if self.detail_class is None or self.action == "list":
            return super().get_serializer_class()
        return self.detail_class


@extend_schema_view(
    list=extend_schema(summary="Dead letters, newest first"),
    retrieve=extend_schema(summary="One with what can be read of it"),
)
class DeadLetterViewSet(_MachineryViewSet[DeadLetter]):
    """Messages that nobody could use: read why, then send one back or drop it."""

    queryset = DeadLetter.objects.all()
    serializer_class = DeadLetterSerializer
    detail_class = DeadLetterDetailSerializer
    filterset_class = DeadLetterFilter
    ordering = ("-died_at", "-id")

    @extend_schema(summary="Send it back", request=None, responses=DeadLetterDetailSerializer)
    @action(detail=True, methods=["post"])
    @idempotent
    def requeue(self, request: Request, pk: str) -> Response:
        """To the queue where it died; 409 when it has been decided before, or has no queue."""
        letter = self.get_object()
        services.requeue_dead_letter(letter=letter, actor=self.person)
        return self.answer(letter)

    @extend_schema(summary="Drop it", request=None, responses=DeadLetterDetailSerializer)
    @action(detail=True, methods=["post"])
    @idempotent
    def drop(self, request: Request, pk: str) -> Response:
        """Nobody will need it; 409 when it has been decided before."""
        letter = self.get_object()
        services.drop_dead_letter(letter=letter, actor=self.person)
        return self.answer(letter)


@extend_schema_view(
    list=extend_schema(summary="What waits to be sent, oldest first"),
    retrieve=extend_schema(summary="One with what can be read of it"),
)
class OutboxViewSet(_MachineryViewSet[OutboxMessage]):
    """What is committed and not yet published; empty while all is well."""

    queryset = OutboxMessage.objects.all()
    serializer_class = OutboxMessageSerializer
    detail_class = OutboxMessageDetailSerializer
    filterset_class = OutboxFilter
    ordering = ("id",)

    @extend_schema(summary="Send it now", request=None, responses=OutboxMessageDetailSerializer)
    @action(detail=True, methods=["post"])
    @idempotent
    def retry(self, request: Request, pk: str) -> Response:
        """Instead of at `next_try_at`; 409 when it has just been sent."""
        message = self.get_object()
        services.retry_outbox_message(message=message, actor=self.person)
        return self.answer(message)

    @extend_schema(summary="Never send it")
    def destroy(self, request: Request, pk: str) -> Response:
        """204. What it would have told is found by the sweeps, later."""
        services.drop_outbox_message(message=self.asked(request), actor=self.person)
        return Response(status=status.HTTP_204_NO_CONTENT)


@extend_schema_view(
    list=extend_schema(summary="Processes"), retrieve=extend_schema(summary="One process")
)
class DaemonViewSet(_MachineryViewSet[Daemon]):
    """Every daemon of the installation: is it there, where, since when."""

    queryset = Daemon.objects.all()
    serializer_class = DaemonSerializer
    filterset_class = DaemonFilter
    ordering = ("kind", "name", "id")

    def get_serializer_context(self) -> dict[str, Any]:
        """All judged at one moment by the database's clock."""
        return {**super().get_serializer_context(), "now": database_now()}

    @extend_schema(summary="Forget a process that is gone")
    def destroy(self, request: Request, pk: str) -> Response:
        """204; 409 while it is alive."""
        services.forget_daemon(daemon=self.asked(request), actor=self.person)
        return Response(status=status.HTTP_204_NO_CONTENT)


@extend_schema_view(
    list=extend_schema(summary="What beat wakes workers for"),
    retrieve=extend_schema(summary="One of them"),
)
class PeriodicTaskViewSet(_MachineryViewSet[Any]):
    """Periodic tasks. The platform writes them: those of jobs follow from their schedules."""

    serializer_class = PeriodicTaskSerializer
    filterset_fields: ClassVar = ("name", "task", "enabled")
    ordering = ("id",)

    def rows(self) -> QuerySet[Any]:
        """Beat's; its models are loaded where they are used."""
        return beat_model()._default_manager.select_related(
            "interval", "crontab", "solar", "clocked"
        )

    @extend_schema(summary="Run it now", request=None, responses={202: PeriodicTaskSerializer})
    @action(detail=True, methods=["post"])
    @idempotent
    def run(self, request: Request, pk: str) -> Response:
        """202: a worker is woken for it once more; its times stay as they are."""
        task = self.get_object()
        services.run_periodic_task(task=task, actor=self.person)
        return self.answer(task, http_status=status.HTTP_202_ACCEPTED)
