"""REST API of the rates of runs and jobs, and of the totals of jobs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.http import Http404
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.access.api.base import ApiView
from apps.jobs.models import Job
from apps.queuestats.api.series import PointSerializer, SpanQuerySerializer, per_second
from apps.queuestats.api.views import visible_run
from apps.queuestats.models import SeriesKind
from apps.queuestats.queries import SeriesKey, job_totals, points_of, rates

# Titles by the name after the dot, see ``services.increases.RATES``.
TITLES: dict[str, Promise] = {
    "requests": _("requests"),
    "pages": _("pages"),
    "items": _("items"),
    "failures": _("failed requests"),
    "bytes": _("bytes"),
}


class JobCountersSerializer(serializers.Serializer[Any]):
    """Totals over all runs of a job: ``total = success + failed + left + undone``."""

    job = serializers.IntegerField()
    total = serializers.IntegerField(help_text="Distinct requests of all runs.")
    success = serializers.IntegerField()
    failed = serializers.IntegerField()
    left = serializers.IntegerField(help_text="Pending requests of active runs.")
    undone = serializers.IntegerField(help_text="Requests still pending when their run ended.")
    pages = serializers.IntegerField()
    items = serializers.IntegerField()
    bytes_received = serializers.IntegerField()
    runs = serializers.IntegerField()
    active_runs = serializers.IntegerField()
    updated_at = serializers.DateTimeField(allow_null=True, help_text="Time of the newest report.")


class RatesQuerySerializer(SpanQuerySerializer):
    """Rates to return, with period and resolution."""

    names = serializers.MultipleChoiceField(
        choices=list(TITLES), required=False, help_text="Default: all except bytes."
    )


class RateSerializer(serializers.Serializer[Any]):
    """One rate over time; ``value`` is per second."""

    name = serializers.CharField()
    title = serializers.CharField()
    kind = serializers.ChoiceField(choices=SeriesKind.choices)
    per_second_1s = serializers.FloatField(allow_null=True)
    per_second_5s = serializers.FloatField(allow_null=True)
    per_second_1m = serializers.FloatField(allow_null=True)
    points = PointSerializer(many=True)


class RatesSerializer(serializers.Serializer[Any]):
    """Rates of a run or a job; the points of all series are ``step`` seconds apart."""

    step = serializers.IntegerField()
    series = RateSerializer(many=True)


class RunSeriesView(ApiView):
    """Rates of a run."""

    @extend_schema(
        operation_id="runs_series_retrieve",
        parameters=[RatesQuerySerializer],
        responses=RatesSerializer,
    )
    def get(self, request: Request, run: int) -> Response:
        """Requests, pages, items and failures a second: now, and over time."""
        visible = visible_run(self.person, run)
        return _rates_response(request, "run", visible.job.project_id, visible.pk)


class JobSeriesView(ApiView):
    """Rates of a job, over all of its runs."""

    @extend_schema(
        operation_id="jobs_series_retrieve",
        parameters=[RatesQuerySerializer],
        responses=RatesSerializer,
    )
    def get(self, request: Request, job: int) -> Response:
        """Requests, pages, items and failures a second: now, and over time."""
        visible = self._job(job)
        return _rates_response(request, "job", visible.project_id, visible.pk)

    def _job(self, pk: int) -> Job:
        row: Job | None = Job.objects.visible_to(self.person).filter(pk=pk).first()
        if row is None:
            raise Http404
        return row


class JobCountersView(JobSeriesView):
    """Totals of a job."""

    @extend_schema(operation_id="jobs_counters_retrieve", responses=JobCountersSerializer)
    def get(self, request: Request, job: int) -> Response:
        """Return the totals of all runs of the job, as last reported."""
        visible = self._job(job)
        totals = job_totals(visible)
        values = asdict(totals) | {"job": visible.pk, "undone": totals.undone}
        return Response(JobCountersSerializer(values).data)


def _rates_response(request: Request, owner: str, project: int, pk: int) -> Response:
    query = RatesQuerySerializer(data=request.query_params)
    query.is_valid(raise_exception=True)
    span = dict(query.validated_data)
    chosen = span.pop("names", None) or [name for name in TITLES if name != "bytes"]
    now = timezone.now()
    keys = {
        name: SeriesKey(f"{owner}.{name}", project, str(pk)) for name in TITLES if name in chosen
    }
    points_found = points_of(keys.values(), **span, now=now)
    speeds = rates([key.name for key in keys.values()], projects=[project], now=now)
    lines = [
        {
            "name": name,
            "title": TITLES[name],
            "kind": SeriesKind.SUM,
            **per_second(speeds.of(*key)),
            "points": points_found[key].points if key in points_found else [],
        }
        for name, key in keys.items()
    ]
    step = next((points.step for points in points_found.values()), span["step"] or 1)
    return Response(RatesSerializer({"step": step, "series": lines}).data)
