"""REST API of time series."""

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
    """One series; sums have their rates per second over the last 1, 5 and 60 seconds."""

    name = serializers.CharField()
    label = serializers.CharField(allow_blank=True)  # type: ignore[assignment]  # DRF has one itself
    kind = serializers.ChoiceField(choices=SeriesKind.choices)
    per_second_1s = serializers.FloatField(allow_null=True)
    per_second_5s = serializers.FloatField(allow_null=True)
    per_second_1m = serializers.FloatField(allow_null=True)


class SeriesListSerializer(PageSerializer):
    """Page of series by name and label."""

    results = SeriesSerializer(many=True)


class SpanQuerySerializer(serializers.Serializer[Any]):
    """Period and resolution."""

    since = serializers.DateTimeField(required=False, help_text="Default: one hour before until.")
    until = serializers.DateTimeField(required=False, help_text="Default: now.")
    seconds = serializers.IntegerField(
        required=False,
        min_value=10,
        max_value=366 * DAY,
        help_text="Length of the period before until; replaces since.",
    )
    step = serializers.IntegerField(
        required=False,
        default=0,
        min_value=0,
        max_value=30 * DAY,
        help_text="Seconds between two points; increased to limit the number of points, and "
        "where finer samples are deleted.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Fill in defaults, and require ``since`` to be before ``until``."""
        attrs.setdefault("until", timezone.now())
        seconds = attrs.pop("seconds", None)
        if seconds is not None:
            attrs["since"] = attrs["until"] - timedelta(seconds=seconds)
        attrs.setdefault("since", attrs["until"] - timedelta(hours=1))
        if attrs["since"] >= attrs["until"]:
            raise serializers.ValidationError({"since": "since must be before until"})
        return attrs


class PointsQuerySerializer(SpanQuerySerializer):
    """Series, period and resolution."""

    name = serializers.CharField(max_length=64, default="requests.created")
    label = serializers.CharField(  # type: ignore[assignment]  # DRF has one itself
        max_length=LABEL_CHARACTERS,
        default="",
        allow_blank=True,
        help_text="For request series: the biz.",
    )


class PointSerializer(serializers.Serializer[Any]):
    """One point. ``value``: rate per second of a sum, mean of a gauge; null: unknown."""

    at = serializers.DateTimeField()
    value = serializers.FloatField(allow_null=True)
    highest = serializers.FloatField(allow_null=True, help_text="Highest reading of a gauge.")


class PointsSerializer(serializers.Serializer[Any]):
    """Points of a series from ``since``, ``step`` seconds apart."""

    kind = serializers.ChoiceField(choices=SeriesKind.choices)
    step = serializers.IntegerField()
    points = PointSerializer(many=True, help_text=f"At most {MOST_POINTS}.")


class SeriesView(ApiView):
    """Series of a project."""

    @extend_schema(
        operation_id="projects_series_retrieve",
        parameters=[PageQuerySerializer],
        responses=SeriesListSerializer,
    )
    def get(self, request: Request, pk: int) -> Response:
        """List the series with their rates over the last second, 5 seconds and minute.

        Series of single runs are at `/runs/{id}/series`.
        """
        return _list(request, _visible_project(self.person, pk).pk)


class PointsView(ApiView):
    """Points of a series of a project."""

    @extend_schema(
        operation_id="projects_series_points_retrieve",
        parameters=[PointsQuerySerializer],
        responses=PointsSerializer,
    )
    def get(self, request: Request, pk: int) -> Response:
        """Return at most 300 points; null is a gap. Empty for an unknown series."""
        return _points(request, _visible_project(self.person, pk).pk)


class PlatformSeriesView(ApiView):
    """Series of the platform: queues, daemons, agents, hosts."""

    permission_classes = (InsideScopes, SeesEverything)

    @extend_schema(
        operation_id="series_retrieve",
        parameters=[PageQuerySerializer],
        responses=SeriesListSerializer,
    )
    def get(self, request: Request) -> Response:
        """List the series without a project. For users who see everything."""
        return _list(request, None)


class PlatformPointsView(ApiView):
    """Points of a series of the platform."""

    permission_classes = (InsideScopes, SeesEverything)

    @extend_schema(
        operation_id="series_points_retrieve",
        parameters=[PointsQuerySerializer],
        responses=PointsSerializer,
    )
    def get(self, request: Request) -> Response:
        """Return at most 300 points; null is a gap. For users who see everything."""
        return _points(request, None)


def _list(request: Request, project: int | None) -> Response:
    every = [row for row in series_of(project=project) if not row[0].startswith("run.")]
    series, after = page_in(request, every, key=lambda row: row[:2])
    sums = {name for name, _label, kind in series if kind == SeriesKind.SUM}
    rates_found = rates(sums, projects=None if project is None else [project], now=timezone.now())
    results = []
    for name, label, kind in series:
        its_rates = rates_found.of(name, project, label) if kind == SeriesKind.SUM else {}
        results.append({"name": name, "label": label, "kind": kind, **per_second(its_rates)})
    return Response(SeriesListSerializer({"results": results, "next": after}).data)


def per_second(found: Rates) -> dict[str, float | None]:
    """Return rates by their names in REST."""
    return {
        "per_second_1s": found.get(1),
        "per_second_5s": found.get(5),
        "per_second_1m": found.get(60),
    }


def _points(request: Request, project: int | None) -> Response:
    query = PointsQuerySerializer(data=request.query_params)
    query.is_valid(raise_exception=True)
    point_lists = points(**query.validated_data, project=project, now=timezone.now())
    if point_lists is None:
        point_lists = Points(SeriesKind.SUM.value, query.validated_data["step"] or 1, [])
    return Response(PointsSerializer(point_lists).data)


def _visible_project(person: User, pk: int) -> Project:
    project = Project.objects.visible_to(person).filter(pk=pk).first()
    if project is None:
        raise Http404
    return project
