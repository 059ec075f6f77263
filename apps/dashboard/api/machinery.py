"""REST API of dead letters, the outbox, daemons and periodic tasks.

Messages may contain data of any project: only users who see everything may read them, and only
superusers may act on them.
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


class _PlatformViewSet(ReadViewSet[M], Generic[M]):
    """Base of viewsets of the platform: for users who see everything; superusers may write."""

    permission_classes = (InsideScopes, RulesEverything)
    # Serializer of a single object; bodies are left out of lists to save memory.
    detail_class: ClassVar[type[BaseSerializer[Any]] | None] = None

    def get_queryset(self) -> QuerySet[M]:
        """Return all rows, in lists without bodies."""
        rows: QuerySet[M] = self.rows()
        return rows.defer("body") if self.detail_class and self.action == "list" else rows

    def rows(self) -> QuerySet[M]:
        """Return all rows, regardless of the user."""
        return cast("QuerySet[M]", self.queryset).all()  # type: ignore[arg-type]  # DRF's stubs

    def asked(self, request: Request) -> M:
        """Return the object of the URL; 412 when If-Match does not match its ETag."""
        obj = self.get_object()
        require_match(request, etag_of(obj, self.get_serializer(obj).data))
        return obj

    def get_serializer_class(self) -> type[BaseSerializer[M]]:
        """Use ``detail_class`` for a single object."""
        if self.detail_class is None or self.action == "list":
            return super().get_serializer_class()
        return self.detail_class


@extend_schema_view(
    list=extend_schema(summary="Dead letters, newest first"),
    retrieve=extend_schema(summary="Dead letter with its decoded body"),
)
class DeadLetterViewSet(_PlatformViewSet[DeadLetter]):
    """Messages that no consumer could process; requeue or drop them."""

    queryset = DeadLetter.objects.all()
    serializer_class = DeadLetterSerializer
    detail_class = DeadLetterDetailSerializer
    filterset_class = DeadLetterFilter
    ordering = ("-died_at", "-id")

    @extend_schema(
        summary="Requeue a dead letter", request=None, responses=DeadLetterDetailSerializer
    )
    @action(detail=True, methods=["post"])
    @idempotent
    def requeue(self, request: Request, pk: str) -> Response:
        """Return it to its queue; 409 if it is already resolved or has no queue."""
        letter = self.get_object()
        services.requeue_dead_letter(letter=letter, actor=self.person)
        return self.answer(letter)

    @extend_schema(summary="Drop a dead letter", request=None, responses=DeadLetterDetailSerializer)
    @action(detail=True, methods=["post"])
    @idempotent
    def drop(self, request: Request, pk: str) -> Response:
        """Discard it; 409 if it is already resolved."""
        letter = self.get_object()
        services.drop_dead_letter(letter=letter, actor=self.person)
        return self.answer(letter)


@extend_schema_view(
    list=extend_schema(summary="Unsent messages, oldest first"),
    retrieve=extend_schema(summary="Unsent message with its decoded body"),
)
class OutboxViewSet(_PlatformViewSet[OutboxMessage]):
    """Messages that are committed and not yet published; normally empty."""

    queryset = OutboxMessage.objects.all()
    serializer_class = OutboxMessageSerializer
    detail_class = OutboxMessageDetailSerializer
    filterset_class = OutboxFilter
    ordering = ("id",)

    @extend_schema(
        summary="Send an unsent message now", request=None, responses=OutboxMessageDetailSerializer
    )
    @action(detail=True, methods=["post"])
    @idempotent
    def retry(self, request: Request, pk: str) -> Response:
        """Send it now instead of at `next_try_at`; 409 if it was sent meanwhile."""
        message = self.get_object()
        services.retry_outbox_message(message=message, actor=self.person)
        return self.answer(message)

    @extend_schema(summary="Drop an unsent message")
    def destroy(self, request: Request, pk: str) -> Response:
        """Delete it. A periodic sweep does its work later."""
        services.drop_outbox_message(message=self.asked(request), actor=self.person)
        return Response(status=status.HTTP_204_NO_CONTENT)


@extend_schema_view(list=extend_schema(summary="Daemons"), retrieve=extend_schema(summary="Daemon"))
class DaemonViewSet(_PlatformViewSet[Daemon]):
    """Daemons of the installation, by their last heartbeat."""

    queryset = Daemon.objects.all()
    serializer_class = DaemonSerializer
    filterset_class = DaemonFilter
    ordering = ("kind", "name", "id")

    def get_serializer_context(self) -> dict[str, Any]:
        """Add the database's time, by which all daemons are judged."""
        return {**super().get_serializer_context(), "now": database_now()}

    @extend_schema(summary="Forget a stopped daemon")
    def destroy(self, request: Request, pk: str) -> Response:
        """Delete its row; 409 while it is alive."""
        services.forget_daemon(daemon=self.asked(request), actor=self.person)
        return Response(status=status.HTTP_204_NO_CONTENT)


@extend_schema_view(
    list=extend_schema(summary="Periodic tasks"), retrieve=extend_schema(summary="Periodic task")
)
class PeriodicTaskViewSet(_PlatformViewSet[Any]):
    """Periodic tasks of beat, read-only: the platform creates them, also from schedules of jobs."""

    serializer_class = PeriodicTaskSerializer
    filterset_fields: ClassVar = ("name", "task", "enabled")
    ordering = ("id",)

    def rows(self) -> QuerySet[Any]:
        """Return beat's rows; its models are loaded on first use."""
        return beat_model()._default_manager.select_related(
            "interval", "crontab", "solar", "clocked"
        )

    @extend_schema(
        summary="Run a periodic task now", request=None, responses={202: PeriodicTaskSerializer}
    )
    @action(detail=True, methods=["post"])
    @idempotent
    def run(self, request: Request, pk: str) -> Response:
        """Queue it once for a worker; its schedule does not change."""
        task = self.get_object()
        services.run_periodic_task(task=task, actor=self.person)
        return self.answer(task, http_status=status.HTTP_202_ACCEPTED)
