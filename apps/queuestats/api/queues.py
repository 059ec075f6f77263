"""REST API of queues."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.access.api.base import ApiView
from apps.access.api.pagination import PageQuerySerializer, PageSerializer, page_in
from apps.queuestats.queries.queues import QueueLine, QueueStatus, queues_of
from yardkit.queues import QueueDirection


class QueueStatusSerializer(serializers.Serializer[Any]):
    """A queue as last sampled. null: unknown."""

    project = serializers.IntegerField(
        allow_null=True, help_text="null for queues of the platform."
    )
    name = serializers.CharField()
    engine = serializers.CharField(help_text="rabbitmq, sqlite, redis, kafka, files, …")
    address = serializers.CharField(help_text="Name of the queue at its engine.")
    way = serializers.ChoiceField(
        choices=[direction.value for direction in QueueDirection],
        help_text="in: external producers; out: external consumers.",
    )
    standing = serializers.ChoiceField(choices=[status.value for status in QueueStatus])
    waiting = serializers.IntegerField(
        allow_null=True, help_text="Messages not yet delivered; the lag of a Kafka topic."
    )
    taken = serializers.IntegerField(allow_null=True)
    readers = serializers.IntegerField(allow_null=True)
    in_per_second = serializers.FloatField(allow_null=True, help_text="Over the last minute.")
    out_per_second = serializers.FloatField(allow_null=True, help_text="Over the last minute.")
    lag_seconds = serializers.FloatField(
        allow_null=True,
        help_text="Age of the oldest message, or an estimate from the rate of the last minute.",
    )
    drained_seconds = serializers.FloatField(
        allow_null=True,
        help_text="Time to empty at the rate of the last minute; null: unknown or never.",
    )
    problem = serializers.CharField()
    at = serializers.DateTimeField(help_text="Time of the sample.")


class QueueListSerializer(PageSerializer):
    """Page of queues by project and name; queues of the platform first."""

    sampled_at = serializers.DateTimeField(allow_null=True)
    stale = serializers.BooleanField(help_text="No queue was sampled within the last 30 s.")
    results = QueueStatusSerializer(many=True)


class QueuesView(ApiView):
    """List of queues."""

    @extend_schema(
        operation_id="queues_list", parameters=[PageQuerySerializer], responses=QueueListSerializer
    )
    def get(self, request: Request) -> Response:
        """List the queues of your projects, and of the platform if you see everything."""
        queues = queues_of(self.person, now=timezone.now(), sparks=False)
        lines, after = page_in(request, queues.lines, key=_key)
        facts = {
            "sampled_at": queues.sampled_at,
            "stale": queues.stale,
            "results": [_facts(line) for line in lines],
            "next": after,
        }
        return Response(QueueListSerializer(facts).data)


def _key(line: QueueLine) -> tuple[int | str, ...]:
    return line.row.project_id or 0, line.row.name, line.row.engine, line.row.address


def _facts(line: QueueLine) -> dict[str, Any]:
    row = line.row
    names = ("name", "engine", "address", "way", "waiting", "taken", "readers")
    return {name: getattr(row, name) for name in (*names, "problem", "at")} | {
        "project": row.project_id,
        "standing": line.standing,
        "in_per_second": line.in_per_second,
        "out_per_second": line.out_per_second,
        "lag_seconds": line.lag_seconds,
        "drained_seconds": line.drained_seconds,
    }
