"""REST view of the scaling advice: how many fetchers should run."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.access.api.base import ApiView
from apps.access.models import User
from apps.projects.models import Project
from apps.requeststore.engine.forecast import Lateness, Outlook
from apps.requeststore.services.scale_advice import wanted_fetchers


class BizAdviceSerializer(serializers.Serializer[Any]):
    """Needs of one biz. Rates are means of up to five minutes; null when unknown."""

    project = serializers.IntegerField()
    project_name = serializers.CharField()
    biz = serializers.CharField()
    backlog = serializers.IntegerField(help_text="New and taken requests.")
    created_per_second = serializers.FloatField(allow_null=True)
    processed_per_second = serializers.FloatField(allow_null=True)
    per_fetcher_per_second = serializers.FloatField(
        allow_null=True, help_text="What one fetcher does while enough waits."
    )
    outlook = serializers.ChoiceField(choices=[outlook.value for outlook in Outlook])
    lateness = serializers.ChoiceField(
        choices=[lateness.value for lateness in Lateness], allow_blank=True
    )
    eta_seconds = serializers.FloatField(
        allow_null=True, help_text="Until nothing waits; null unless outlook is done."
    )
    needed = serializers.IntegerField()
    reason = serializers.CharField()


class ScaleSerializer(serializers.Serializer[Any]):
    """Scaling advice; `wanted` is 1 to `most` (FETCHERS_MAX)."""

    running = serializers.IntegerField()
    wanted = serializers.IntegerField()
    needed = serializers.IntegerField(help_text="At this moment, before it is bounded and settled.")
    most = serializers.IntegerField()
    at = serializers.DateTimeField()
    bizzes = BizAdviceSerializer(many=True, help_text="Those of projects that the caller sees.")


class ScaleView(ApiView):
    """Scaling advice: running and wanted fetchers.

    Scales up at once, and down after ten minutes of lower need.
    """

    @extend_schema(operation_id="requests_scale_retrieve", responses=ScaleSerializer)
    def get(self, request: Request) -> Response:
        """Return the current advice."""
        advice = wanted_fetchers().as_dict()
        visible = _visible(self.person)
        advice["bizzes"] = [biz for biz in advice["bizzes"] if biz["project"] in visible]
        return Response(ScaleSerializer(advice).data)


def _visible(person: User) -> set[int]:
    return set(Project.objects.visible_to(person).values_list("pk", flat=True))
