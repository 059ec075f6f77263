"""REST endpoints that mute and unmute rules."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from apps.access.api.base import ApiView
from apps.access.api.fields import VisibleRelatedField
from apps.access.api.idempotency import idempotent
from apps.access.errors import RoleRequired
from apps.access.services import has_role, has_role_somewhere
from apps.access.states import Role
from apps.alerts.services.mutes import LONGEST, mute_rule, unmute_rule
from apps.projects.models import Project


class MutedRuleSerializer(serializers.Serializer[Any]):
    """Rule name and scope of a mute."""

    rule = serializers.CharField(max_length=100)
    project = VisibleRelatedField(
        queryset=Project.objects.all(),
        allow_null=True,
        help_text="null: in every project; for superusers.",
    )


class MuteSerializer(MutedRuleSerializer):
    """Duration and reason of a mute."""

    seconds = serializers.IntegerField(min_value=60, max_value=int(LONGEST.total_seconds()))
    note = serializers.CharField(max_length=500, required=False, allow_blank=True, default="")


class MuteShownSerializer(serializers.Serializer[Any]):
    """Active mute."""

    rule = serializers.CharField()
    project = serializers.IntegerField(allow_null=True)
    until = serializers.DateTimeField()
    by = serializers.CharField()
    note = serializers.CharField()


class _ForOperators(ApiView):
    def asked(self, request: Request, shape: type[MutedRuleSerializer]) -> dict[str, Any]:
        """Return the validated request. Raises ``RoleRequired`` without the operator role there."""
        if not has_role_somewhere(self.person, Role.OPERATOR):
            raise RoleRequired
        body = shape(data=request.data, context={"request": request})
        body.is_valid(raise_exception=True)
        values = dict(body.validated_data)
        project = values.pop("project")
        values["project_id"] = None if project is None else project.pk
        if not has_role(self.person, values["project_id"], Role.OPERATOR):
            raise RoleRequired
        return values


class MuteRuleView(_ForOperators):
    """Mute a rule's notifications until a time."""

    @extend_schema(
        operation_id="alert_rules_mute", request=MuteSerializer, responses=MuteShownSerializer
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """Mute a rule. Incidents still open. A second call replaces the first."""
        values = self.asked(request, MuteSerializer)
        now = timezone.now()
        until = now + timedelta(seconds=values.pop("seconds"))
        mute = mute_rule(**values, until=until, actor=self.person, now=now)
        shown = {name: getattr(mute, name) for name in ("rule", "until", "by", "note")}
        return Response(MuteShownSerializer({**shown, "project": mute.project_id}).data)


class UnmuteRuleView(_ForOperators):
    """Unmute a rule."""

    @extend_schema(
        operation_id="alert_rules_unmute",
        request=MutedRuleSerializer,
        responses={204: OpenApiResponse(description="It is muted no more.")},
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """Unmute a rule. 204 also if it was not muted."""
        unmute_rule(**self.asked(request, MutedRuleSerializer), actor=self.person)
        return Response(status=status.HTTP_204_NO_CONTENT)
