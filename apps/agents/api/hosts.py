"""Host rules and host states over REST."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.access.api.base import ReadViewSet, WriteViewSet
from apps.access.api.idempotency import idempotent
from apps.access.api.permissions import InsideScopes, RoleInAnyProject
from apps.agents.hosts.models import HostRule, HostState
from apps.agents.hosts.services import change_rule, create_rule, delete_rule, resume_host, stop_host


class HostRuleSerializer(serializers.ModelSerializer[HostRule]):
    """Rule for a host; null leaves a field to the settings or to the job."""

    class Meta:
        model = HostRule
        fields = [
            "id",
            "host",
            "requests_per_second",
            "concurrency",
            "stopped",
            "obey_robots",
            "notes",
            "updated_at",
        ]
        read_only_fields = ["updated_at"]


class HostStateSerializer(serializers.ModelSerializer[HostState]):
    """State of a busy host at one center, at most a second old."""

    class Meta:
        model = HostState
        fields = [
            "id",
            "host",
            "center",
            "held",
            "in_flight",
            "stopped",
            "blocked_until",
            "reason",
            "robots",
            "reported_at",
        ]
        read_only_fields = fields


class HostSwitchSerializer(serializers.Serializer[Any]):
    """Whether a host is stopped."""

    host = serializers.CharField()
    stopped = serializers.BooleanField()


class HostRuleViewSet(WriteViewSet[HostRule]):
    """Rules for hosts; the centers apply a change within a second."""

    queryset = HostRule.objects.all()
    serializer_class = HostRuleSerializer
    permission_classes = (InsideScopes, RoleInAnyProject)
    filterset_fields = ("host", "stopped")
    ordering = ("id",)

    def get_queryset(self) -> QuerySet[HostRule]:
        """Return all rules: hosts have no project."""
        return HostRule.objects.all()

    def check_role_for_input(self, serializer: Any) -> None:
        """Check nothing more: there is no project."""

    def project_of_input(self, values: Any) -> int | None:
        """Return None: hosts have no project."""
        return None

    def create_object(self, values: dict[str, Any]) -> HostRule:
        """Create a rule."""
        return create_rule(actor=self.person, **values)

    def update_object(self, obj: HostRule, values: dict[str, Any]) -> HostRule:
        """Change a rule."""
        return change_rule(rule=obj, actor=self.person, **values)

    def delete_object(self, obj: HostRule) -> None:
        """Delete a rule."""
        delete_rule(rule=obj, actor=self.person)

    @extend_schema(request=None, responses=HostSwitchSerializer)
    @action(detail=True, methods=["post"])
    @idempotent
    def stop(self, request: Request, pk: str) -> Response:
        """Hold all requests for the host, of all runs."""
        rule = self.get_object()
        stop_host(host=rule.host, actor=self.person)
        return Response({"host": rule.host, "stopped": True})

    @extend_schema(request=None, responses=HostSwitchSerializer)
    @action(detail=True, methods=["post"])
    @idempotent
    def resume(self, request: Request, pk: str) -> Response:
        """Release held requests. A rule without other fields is deleted."""
        rule = self.get_object()
        resume_host(host=rule.host, actor=self.person)
        return Response({"host": rule.host, "stopped": False})


class HostViewSet(ReadViewSet[HostState]):
    """Hosts with held requests, requests in flight or a pause."""

    queryset = HostState.objects.all()
    serializer_class = HostStateSerializer
    permission_classes = (InsideScopes, RoleInAnyProject)
    filterset_fields = ("host", "center", "stopped")
    ordering = ("id",)

    def get_queryset(self) -> QuerySet[HostState]:
        """Return all hosts: they have no project."""
        return HostState.objects.all()
