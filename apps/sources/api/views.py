"""REST views of sources. The id in the URL of a source is that of its project."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.conf import settings
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer

from apps.access.api.base import ReadViewSet, WriteViewSet
from apps.access.api.idempotency import idempotent, repeatable
from apps.access.states import Role
from apps.configcenter.models import Configuration
from apps.sources.api.filters import CredentialFilter, HarvestFilter
from apps.sources.api.seed import size_shown
from apps.sources.api.serializers import (
    AskedSerializer,
    CredentialSerializer,
    EndedSerializer,
    EndLeaseSerializer,
    HarvestPreviewSerializer,
    HarvestSerializer,
    LeasedRecordsSerializer,
    MarkerSerializer,
    NamesSerializer,
    QueueSerializer,
    RecordLeaseSerializer,
    RecordsSerializer,
    SizeSerializer,
    SourceNameSerializer,
    SourceProjectDetailSerializer,
    SourceProjectSerializer,
    SourceSerializer,
    TakeSerializer,
)
from apps.sources.api.shown import named_by, source_shown
from apps.sources.models import Credential, Harvest, RecordQueue
from apps.sources.queries import KIND, status, statuses
from apps.sources.services import delete_credential, save_credential, set_marker, start, stop
from apps.sources.services.consumption import (
    Record,
    acknowledge,
    consume,
    give_back,
    lease_records,
    peek,
)
from apps.sources.services.preview import preview
from apps.sources.services.queues import queue_of_project, queue_size

# Records may contain customer data.
_NO_STORE = {"Cache-Control": "no-store"}


class SourceProjectViewSet(ReadViewSet[Configuration]):
    """Projects with sources: settings, progress, and the records in their queues."""

    queryset = Configuration.objects.filter(kind=KIND).select_related("active", "project")
    serializer_class = SourceProjectSerializer
    lookup_field = "project_id"
    lookup_url_kwarg = "pk"
    required_roles = {
        **dict.fromkeys(("peek",), Role.VIEWER),
        **dict.fromkeys(
            ("start", "stop", "consume", "lease", "acknowledge", "give_back"), Role.OPERATOR
        ),
        # It uses stored credentials and the API's quota: not for read-only tokens.
        "dry_run": Role.OPERATOR,
        "marker": Role.EDITOR,
    }

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Treat ``peek`` as reading: it is a POST that changes nothing."""
        self.only_reads = self.action == "peek"
        super().initial(request, *args, **kwargs)

    @extend_schema(responses=SourceProjectDetailSerializer)
    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """List every source with its newest import."""
        project = self.get_object()
        data = SourceProjectSerializer(project).data
        data["sources"] = [source_shown(row) for row in statuses(project.home_id)]
        return Response(data)

    @extend_schema(request=NamesSerializer, responses=AskedSerializer(many=True), filters=False)
    @action(detail=True, methods=["post"], pagination_class=None)
    @idempotent
    def start(self, request: Request, pk: str | None = None) -> Response:
        """Start these sources, or every enabled one; each resumes at its checkpoint."""
        return self._ask(request, start)

    @extend_schema(request=NamesSerializer, responses=AskedSerializer(many=True), filters=False)
    @action(detail=True, methods=["post"], pagination_class=None)
    @idempotent
    def stop(self, request: Request, pk: str | None = None) -> Response:
        """Stop these sources, or all, after the current batch; schedules do not restart them."""
        return self._ask(request, stop)

    @extend_schema(request=MarkerSerializer, responses=SourceSerializer, filters=False)
    @action(detail=True, methods=["post"], pagination_class=None)
    @idempotent
    def marker(self, request: Request, pk: str | None = None) -> Response:
        """Set the marker, the offset at which the next import ends; null imports everything."""
        project = self.get_object().home_id
        values = _valid(MarkerSerializer(data=request.data))
        set_marker(
            project_id=project,
            name=values["name"],
            marker=values["marker"],
            by_seed_rule=values["by_seed_rule"],
            actor=self.person,
        )
        return Response(source_shown(status(project, values["name"])))

    @extend_schema(request=SourceNameSerializer, responses=HarvestPreviewSerializer, filters=False)
    @action(detail=True, methods=["post"], url_path="dry-run", pagination_class=None)
    def dry_run(self, request: Request, pk: str | None = None) -> Response:
        """Return what a start would read: asks the API for its total, changes nothing."""
        project = self.get_object().home_id
        values = _valid(SourceNameSerializer(data=request.data))
        dry_run_result = preview(
            project_id=project, name=values["name"], networks=settings.SOURCES_ALLOWED_NETWORKS
        )
        return Response({**asdict(dry_run_result), "new": dry_run_result.new})

    @extend_schema(parameters=[QueueSerializer], responses=SizeSerializer, filters=False)
    @action(detail=True, methods=["get"], url_path="queue-size", pagination_class=None)
    def queue_size(self, request: Request, pk: str | None = None) -> Response:
        """Return the number of waiting records, and how many of them have not expired."""
        queue = self._queue(_valid(QueueSerializer(data=request.query_params)))
        return Response(size_shown(queue_size(queue=queue, now=timezone.now())))

    @extend_schema(request=TakeSerializer, responses=RecordsSerializer, filters=False)
    @action(detail=True, methods=["post"], pagination_class=None)
    def peek(self, request: Request, pk: str | None = None) -> Response:
        """Return the oldest records without removing them from the queue."""
        values = _valid(TakeSerializer(data=request.data))
        queue = self._queue(values)
        return _records(queue, peek(queue=queue, count=values["count"], now=timezone.now()))

    @extend_schema(request=TakeSerializer, responses=RecordsSerializer, filters=False)
    @action(detail=True, methods=["post"], pagination_class=None)
    @repeatable
    def consume(self, request: Request, pk: str | None = None) -> Response:
        """Remove and return the oldest records. If the response is lost, so are the records."""
        values = _valid(TakeSerializer(data=request.data))
        queue = self._queue(values)
        return _records(queue, consume(queue=queue, count=values["count"], now=timezone.now()))

    @extend_schema(request=RecordLeaseSerializer, responses=LeasedRecordsSerializer, filters=False)
    @action(detail=True, methods=["post"], pagination_class=None)
    @repeatable
    def lease(self, request: Request, pk: str | None = None) -> Response:
        """Lease the oldest records until they are acknowledged or the lease expires.

        Records that are not acknowledged go to the next caller. A call whose response was lost can
        be repeated: its records return to the queue when their lease expires.
        """
        values = _valid(RecordLeaseSerializer(data=request.data))
        queue = self._queue(values)
        lease_result = lease_records(
            queue=queue,
            count=values["count"],
            seconds=values["seconds"],
            holder=self.person.get_username(),
            now=timezone.now(),
        )
        return _records(
            queue,
            lease_result.records,
            lease=lease_result.lease,
            deadline_at=lease_result.deadline_at,
        )

    @extend_schema(request=EndLeaseSerializer, responses=EndedSerializer, filters=False)
    @action(detail=True, methods=["post"], pagination_class=None)
    @idempotent
    def acknowledge(self, request: Request, pk: str | None = None) -> Response:
        """Acknowledge leased records."""
        return self._end(request, acknowledge)

    @extend_schema(request=EndLeaseSerializer, responses=EndedSerializer, filters=False)
    @action(detail=True, methods=["post"], url_path="give-back", pagination_class=None)
    @idempotent
    def give_back(self, request: Request, pk: str | None = None) -> Response:
        """Return leased records to the queue."""
        return self._end(request, give_back)

    def _ask(self, request: Request, service: Any) -> Response:
        project = self.get_object().home_id
        values = _valid(NamesSerializer(data=request.data))
        with named_by("sources"):
            outcomes = service(
                project_id=project,
                names=values.get("sources"),
                actor=self.person,
                now=timezone.now(),
            )
        return Response(
            [{"name": outcome.name, "became": outcome.became.value} for outcome in outcomes]
        )

    def _end(self, request: Request, service: Any) -> Response:
        project = self.get_object().home_id
        values = _valid(EndLeaseSerializer(data=request.data))
        number = service(
            queue=queue_of_project(project_id=project, name=values["queue"]),
            lease=values["lease"],
            message_ids=values.get("ids"),
            now=timezone.now(),
        )
        return Response({"records": number})

    def _queue(self, values: dict[str, Any]) -> RecordQueue:
        return queue_of_project(project_id=self.get_object().home_id, name=values["queue"])


class HarvestViewSet(ReadViewSet[Harvest]):
    """Imports of all sources, newest first."""

    queryset = Harvest.objects.all()
    serializer_class = HarvestSerializer
    filterset_class = HarvestFilter


class CredentialViewSet(WriteViewSet[Credential]):
    """Credentials of record APIs. Editors write them; secrets are never returned."""

    queryset = Credential.objects.select_related("project")
    serializer_class = CredentialSerializer
    filterset_class = CredentialFilter

    def create_object(self, values: dict[str, Any]) -> Credential:
        """Create credentials; 409 if the name is taken."""
        project, name = values.pop("project"), values.pop("name")
        return save_credential(
            project_id=project.pk, name=name, values=values, actor=self.person, new=True
        )

    def update_object(self, obj: Credential, values: dict[str, Any]) -> Credential:
        """Change the given secrets; the others stay."""
        return save_credential(
            project_id=obj.project_id, name=obj.name, values=values, actor=self.person
        )

    def delete_object(self, obj: Credential) -> None:
        """Delete credentials; 409 while a source uses them."""
        delete_credential(credential=obj, actor=self.person)


def _valid(serializer: Serializer[Any]) -> dict[str, Any]:
    serializer.is_valid(raise_exception=True)
    return dict(serializer.validated_data)


def _records(queue: RecordQueue, records: list[Record], **more: Any) -> Response:
    shown = {"queue": queue.name, "records": [record.shown() for record in records], **more}
    return Response(shown, headers=_NO_STORE)
