"""Series over time, over REST (seed S4.24, S4.25)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from django.http import Http404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.access.api.base import ApiView
from apps.access.api.pagination import PageQuerySerializer, PageSerializer, page_in
from apps.access.api.permissions import InsideScopes, SeesEverything
from apps.access.models import User
from apps.projects.models import Project
from apps.queuestats.models import LABEL_CHARACTERS, SeriesKind
from apps.queuestats.queries import Points, points, rates, series_of
from apps.queuestats.queries.series import MOST_POINTS, Rates

DAY: Final = 86_400


class SeriesSerializer(serializers.Serializer[Any]):
    """One quantity. Of a sum the rates are given: how many a second over so many seconds."""

    name = serializers.CharField()
    label = serializers.CharField(allow_blank=True)  # type: ignore[assignment]  # DRF has one itself
    kind = serializers.ChoiceField(choices=SeriesKind.choices)
    per_second_1s = serializers.FloatField(allow_null=True)
    per_second_5s = serializers.FloatField(allow_null=True)
    per_second_1m = serializers.FloatField(allow_null=True)


class SeriesListSerializer(PageSerializer):
    """What is counted and measured, by name and label."""

    results = SeriesSerializer(many=True)


class SpanQuerySerializer(serializers.Serializer[Any]):
    """When, and how fine."""

    since = serializers.DateTimeField(required=False, help_text="An hour before until.")
    until = serializers.DateTimeField(required=False, help_text="Now.")
    seconds = serializers.IntegerField(
        required=False,
        min_value=10,
        max_value=366 * DAY,
        help_text="How long before until; instead of since.",
    )
    step = serializers.IntegerField(
        required=False,
        default=0,
        min_value=0,
        max_value=30 * DAY,
        help_text="Seconds between two points; longer where there would be too many, or where "
        "the time is not kept that finely.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """``since`` is before ``until``."""
        attrs.setdefault("until", timezone.now())
        seconds = attrs.pop("seconds", None)
        if seconds is not None:
            attrs["since"] = attrs["until"] - timedelta(seconds=seconds)
        attrs.setdefault("since", attrs["until"] - timedelta(hours=1))
        if attrs["since"] >= attrs["until"]:
            raise serializers.ValidationError({"since": "since is before until"})
        return attrs


class PointsQuerySerializer(SpanQuerySerializer):
    """Which series, when, and how fine."""

    name = serializers.CharField(max_length=64, default="requests.created")
    label = serializers.CharField(  # type: ignore[assignment]  # DRF has one itself
        max_length=LABEL_CHARACTERS,
        default="",
        allow_blank=True,
        help_text="Of requests: the biz.",
    )


class PointSerializer(serializers.Serializer[Any]):
    """``value``: of a sum how many a second, of a gauge the mean; null: nobody knows."""

    at = serializers.DateTimeField()
    value = serializers.FloatField(allow_null=True)
    highest = serializers.FloatField(allow_null=True, help_text="Of a gauge.")


class PointsSerializer(serializers.Serializer[Any]):
    """Points from ``since`` on, ``step`` seconds apart."""

    kind = serializers.ChoiceField(choices=SeriesKind.choices)
    step = serializers.IntegerField()
    points = PointSerializer(many=True, help_text=f"At most {MOST_POINTS}.")


class SeriesView(ApiView):
    """What is counted and measured of a project."""

    @extend_schema(
        operation_id="projects_series_retrieve",
        parameters=[PageQuerySerializer],
        responses=SeriesListSerializer,
    )
    def get(self, request: Request, pk: int) -> Response:
        """Every series, with the rates of the last second, 5 seconds and minute.

        Those of single runs are at `/runs/{id}/series`.
        """
        return _list(request, _visible_project(self.person, pk).pk)


class PointsView(ApiView):
    """A series over time, for a chart."""

    @extend_schema(
        operation_id="projects_series_points_retrieve",
        parameters=[PointsQuerySerializer],
        responses=PointsSerializer,
    )
    def get(self, request: Request, pk: int) -> Response:
        """At most 300 points; a null is a gap, which is no zero. None where nothing was counted."""
        return _points(request, _visible_project(self.person, pk).pk)


class PlatformSeriesView(ApiView):
    """What is counted and measured of the platform: queues, daemons, agents, hosts."""

    permission_classes = (InsideScopes, SeesEverything)

    @extend_schema(
        operation_id="series_retrieve",
        parameters=[PageQuerySerializer],
        responses=SeriesListSerializer,
    )
    def get(self, request: Request) -> Response:
        """Every series that belongs to no project. For those who see everything."""
        return _list(request, None)


class PlatformPointsView(ApiView):
    """A series of the platform over time, for a chart."""

    permission_classes = (InsideScopes, SeesEverything)

    @extend_schema(
        operation_id="series_points_retrieve",
        parameters=[PointsQuerySerializer],
        responses=PointsSerializer,
    )
    def get(self, request: Request) -> Response:
        """At most 300 points; a null is a gap, which is no zero. For those who see everything."""
        return _points(request, None)


def _list(request: Request, project: int | None) -> Response:
    every = [each for each in series_of(project=project) if not each[0].startswith("run.")]
    series, after = page_in(request, every, key=lambda each: each[:2])
    sums = {name for name, _label, kind in series if kind == SeriesKind.SUM}
    found = rates(sums, projects=None if project is None else [project], now=timezone.now())
    results = []
    for name, label, kind in series:
        own = found.of(name, project, label) if kind == SeriesKind.SUM else {}
        results.append({"name": name, "label": label, "kind": kind, **per_second(own)})
    return Response(SeriesListSerializer({"results": results, "next": after}).data)


def per_second(own: Rates) -> dict[str, float | None]:
    """Rates as REST names them."""
    return {
        "per_second_1s": own.get(1),
        "per_second_5s": own.get(5),
        "per_second_1m": own.get(60),
    }


def _points(request: Request, project: int | None) -> Response:
    query = PointsQuerySerializer(data=request.query_params)
    query.is_valid(raise_exception=True)
    found = points(**query.validated_data, project=project, now=timezone.now())
    if found is None:
        found = Points(SeriesKind.SUM.value, query.validated_data["step"] or 1, [])
    return Response(PointsSerializer(found).data)


def _visible_project(person: User, pk: int) -> Project:
    found = Project.objects.visible_to(person).filter(pk=pk).first()
    if found is None:
        raise Http404
    return found
