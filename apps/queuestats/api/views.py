"""REST API of a run's counters and failed requests."""

from __future__ import annotations

from django.db.models import QuerySet
from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from apps.access.api.base import ApiView, ReadViewSet
from apps.access.models import User
from apps.jobs.models import Run
from apps.queuestats.api.filters import RunStatsFilter
from apps.queuestats.api.serializers import (
    FailedRequestSerializer,
    RunCountersSerializer,
    RunStatsSerializer,
)
from apps.queuestats.models import FailedRequest, RunStats
from apps.queuestats.queries import center_totals, run_totals


def visible_run(person: User, run: int) -> Run:
    """Return the run; 404 if the person may not see it."""
    row = Run.objects.visible_to(person).filter(pk=run).first()
    if row is None:
        raise Http404
    return row


class RunCountersView(ApiView):
    """Counters of a run."""

    @extend_schema(operation_id="runs_counters_retrieve", responses=RunCountersSerializer)
    def get(self, request: Request, run: int) -> Response:
        """Return the counters as last reported."""
        visible = visible_run(self.person, run)
        totals = run_totals([visible.owner])[visible.owner]
        facts = {
            "run": visible.pk,
            "state": visible.state,
            "reason": visible.reason,
            "started_at": visible.started_at,
            "ended_at": visible.ended_at,
            "reported": totals.reported,
            "items_by_field": totals.fields,
            "center": center_totals([visible.owner])[visible.owner].as_dict(),
        }
        return Response(RunCountersSerializer(facts | totals.as_dict()).data)


class RunFailuresViewSet(ReadViewSet[FailedRequest]):
    """Permanently failed requests of a run, oldest first."""

    queryset = FailedRequest.objects.all()
    serializer_class = FailedRequestSerializer
    ordering = ("id",)

    def get_queryset(self) -> QuerySet[FailedRequest]:
        """Select the failed requests of the run in the URL."""
        rows = super().get_queryset()
        if getattr(self, "swagger_fake_view", False):
            return rows
        return rows.filter(owner=visible_run(self.person, self.kwargs["run"]).owner)


class RunStatsView(ApiView):
    """Statistics of a run's framework, such as Scrapy's."""

    @extend_schema(operation_id="runs_stats_retrieve", responses=RunStatsSerializer)
    def get(self, request: Request, run: int) -> Response:
        """Return the statistics as last reported; 404 for a run without any."""
        stats = RunStats.objects.filter(run=visible_run(self.person, run)).first()
        if stats is None:
            raise Http404
        return Response(RunStatsSerializer(stats).data)


class RunStatsViewSet(ReadViewSet[RunStats]):
    """Statistics of runs, newest run first, such as ``?stat=retry/count>10``."""

    queryset = RunStats.objects.select_related("run")
    serializer_class = RunStatsSerializer
    filterset_class = RunStatsFilter
    ordering = ("-id",)
