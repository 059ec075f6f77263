"""REST views of hosts and of the placement of runs."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.http import Http404
from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers, status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.access.api.base import ApiView, ReadViewSet
from apps.access.api.fields import KnownFields
from apps.access.api.idempotency import idempotent
from apps.access.api.permissions import InsideScopes, RoleInAnyProject
from apps.jobs.api.filters import RunHostFilter
from apps.jobs.models import Host, Job
from apps.jobs.services import explain_placement, forget_host, switch_host
from apps.jobs.states import HostMode


class HostSerializer(serializers.ModelSerializer[Host]):
    """Host of runs, as last reported by its runner; only ``mode`` can be changed."""

    online = serializers.SerializerMethodField(
        help_text="Whether the last heartbeat is younger than 60 s."
    )
    labels = serializers.SerializerMethodField()

    class Meta:
        model = Host
        fields = [
            "id",
            "name",
            "kind",
            "mode",
            "online",
            "problem",
            "capacity",
            "running",
            "labels",
            "cpu_percent",
            "cores",
            "memory_free_bytes",
            "memory_total_bytes",
            "system",
            "version",
            "engine",
            "registered_at",
            "beat_at",
        ]
        read_only_fields = fields

    def get_online(self, host: Host) -> bool:
        """Whether the last heartbeat is recent, measured by the clock of the server."""
        return host.is_online(timezone.now())

    @extend_schema_field({"type": "object", "additionalProperties": {"type": "string"}})
    def get_labels(self, host: Host) -> dict[str, str]:
        """Labels of the runner."""
        return dict(host.labels)


class HostModeSerializer(KnownFields, serializers.Serializer[Any]):
    """New mode of a host."""

    mode = serializers.ChoiceField(choices=HostMode.choices)


class VerdictSerializer(serializers.Serializer[Any]):
    """Whether one host is eligible for a run, and the reasons against it."""

    host = serializers.CharField()
    eligible = serializers.BooleanField()
    chosen = serializers.BooleanField()
    against = serializers.ListField(child=serializers.CharField(), help_text="All that is wrong.")
    free = serializers.IntegerField(help_text="Places for further runs.")
    capacity = serializers.IntegerField()
    cpu_percent = serializers.FloatField()


class PlacementSerializer(serializers.Serializer[Any]):
    """Host that a run would be placed on now; `reason` says why no host is eligible."""

    chosen = serializers.CharField(allow_blank=True)
    reason = serializers.CharField(allow_blank=True)
    hosts = VerdictSerializer(many=True)


class RunHostViewSet(ReadViewSet[Host]):
    """Hosts of runs."""

    queryset = Host.objects.all()
    serializer_class = HostSerializer
    filterset_class = RunHostFilter
    permission_classes = (InsideScopes, RoleInAnyProject)
    ordering = ("id",)

    def get_queryset(self) -> QuerySet[Host]:
        """Return all hosts: they serve every project."""
        return Host.objects.all()

    @extend_schema(request=HostModeSerializer, responses=HostSerializer)
    def partial_update(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Change the mode of a host."""
        host = self.get_object()
        body = HostModeSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        return self._switch(host, HostMode(body.validated_data["mode"]))

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Delete a host that is gone permanently. 409 while it is online."""
        forget_host(host=self.get_object(), actor=self.person, now=timezone.now())
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(request=None, responses=HostSerializer)
    @action(detail=True, methods=["post"])
    @idempotent
    def enable(self, request: Request, pk: str | None = None) -> Response:
        """Enable a host: it gets new runs again."""
        return self._switch(self.get_object(), HostMode.ENABLED)

    @extend_schema(request=None, responses=HostSerializer)
    @action(detail=True, methods=["post"])
    @idempotent
    def drain(self, request: Request, pk: str | None = None) -> Response:
        """Drain a host: it gets no new runs until it is enabled; active runs continue."""
        return self._switch(self.get_object(), HostMode.DRAINING)

    @extend_schema(request=None, responses=HostSerializer)
    @action(detail=True, methods=["post"])
    @idempotent
    def disable(self, request: Request, pk: str | None = None) -> Response:
        """Disable a host: it gets no new runs until it is enabled."""
        return self._switch(self.get_object(), HostMode.DISABLED)

    def _switch(self, host: Host, mode: HostMode) -> Response:
        switch_host(host=host, mode=mode, actor=self.person)
        return self.answer(host)


class JobPlacementView(ApiView):
    """Placement of a run of the job if it were started now, with the reasons against each host."""

    @extend_schema(operation_id="jobs_placement_retrieve", responses=PlacementSerializer)
    def get(self, request: Request, job: int) -> Response:
        """Explain the placement of a run by the last heartbeats of all hosts. Read-only."""
        row = Job.objects.visible_to(self.person).filter(pk=job).first()
        if row is None:
            raise Http404
        return Response(PlacementSerializer(explain_placement(job=row, now=timezone.now())).data)
