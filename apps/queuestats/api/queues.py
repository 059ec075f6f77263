"""Every queue over REST (seed S4.24)."""

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
from yardkit.queues import Way


class QueueStatusSerializer(serializers.Serializer[Any]):
    """A queue as it stood when it was last read. null: nobody can say."""

    project = serializers.IntegerField(allow_null=True, help_text="null: of the platform.")
    name = serializers.CharField()
    engine = serializers.CharField(help_text="rabbitmq, sqlite, redis, kafka, files, …")
    address = serializers.CharField(help_text="What its engine calls it.")
    way = serializers.ChoiceField(
        choices=[each.value for each in Way], help_text="in: others write; out: others read."
    )
    standing = serializers.ChoiceField(choices=[each.value for each in QueueStatus])
    waiting = serializers.IntegerField(allow_null=True, help_text="Of a Kafka topic: the lag.")
    taken = serializers.IntegerField(allow_null=True)
    readers = serializers.IntegerField(allow_null=True)
    in_per_second = serializers.FloatField(allow_null=True, help_text="Over the last minute.")
    out_per_second = serializers.FloatField(allow_null=True, help_text="Over the last minute.")
    lag_seconds = serializers.FloatField(
        allow_null=True,
        help_text="For how long a message waits: the oldest one, or at the pace of the last "
        "minute.",
    )
    drained_seconds = serializers.FloatField(
        allow_null=True, help_text="Until it is empty at this pace; null: unknown, or never."
    )
    problem = serializers.CharField()
    at = serializers.DateTimeField(help_text="When it was read.")


class QueueListSerializer(PageSerializer):
    """Queues by project and name, those of the platform first."""

    sampled_at = serializers.DateTimeField(allow_null=True)
    stale = serializers.BooleanField(help_text="Nobody has read them for half a minute.")
    results = QueueStatusSerializer(many=True)


class QueuesView(ApiView):
    """How much waits where."""

    @extend_schema(
        operation_id="queues_list",
        parameters=[PageQuerySerializer],
        responses=QueueListSerializer,
    )
    def get(self, request: Request) -> Response:
        """Those of one's projects; with those of the platform for who sees everything."""
        found = queues_of(self.person, now=timezone.now(), sparks=False)
        lines, after = page_in(request, found.lines, key=_key)
        facts = {
            "sampled_at": found.sampled_at,
            "stale": found.stale,
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
