"""REST API of the pages that are kept of runs."""

from __future__ import annotations

from typing import Any

from django.http import Http404, StreamingHttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from apps.access.api.base import ApiView
from apps.access.api.fields import KnownFields
from apps.access.api.idempotency import idempotent
from apps.access.services import require_role
from apps.access.states import Role
from apps.datasets.api.files import streamed
from apps.datasets.api.renderers import AnyContent
from apps.datasets.api.serializers import ItemPageSerializer, ItemQuerySerializer
from apps.datasets.api.views import FORMAT, ItemsBaseView, answered, visible_run
from apps.datasets.queries.items import dataset_of_run
from apps.datasets.queries.kept_pages import page_accounting, warc_chunks, warc_files
from apps.datasets.services.replays import replay_run
from apps.datasets.states import Kind
from apps.jobs.api.serializers import RunSerializer
from apps.jobs.states import ReplayMissing

WARC = "application/warc"


class PageAccountingSerializer(serializers.Serializer[Any]):
    """chosen = kept + not kept + waiting."""

    chosen = serializers.IntegerField(help_text="Responses that the job's setting chose.")
    kept = serializers.IntegerField()
    not_kept = serializers.IntegerField()
    waiting = serializers.IntegerField(help_text="On the agents, to be uploaded.")
    deleted = serializers.IntegerField(help_text="Kept ones that the retention has deleted.")
    reasons = serializers.DictField(
        child=serializers.IntegerField(), help_text="Of what is not kept."
    )


class RunPagesView(ItemsBaseView):
    """Index of the kept pages of a run."""

    @extend_schema(
        operation_id="runs_pages",
        summary="Kept pages of a run",
        parameters=[ItemQuerySerializer, FORMAT],
        responses={200: ItemPageSerializer, (200, "text/csv"): OpenApiTypes.BINARY},
    )
    def get(self, request: Request, run: int) -> Any:
        """Return one row for each kept response, as for the items of a run."""
        found = visible_run(request, run)
        return self.items(request, dataset_of_run(found, Kind.PAGES), run)


class RunPageAccountingView(ApiView):
    """Accounting of the kept pages of a run."""

    @extend_schema(
        operation_id="runs_pages_accounting",
        summary="Accounting of a run's kept pages",
        responses=PageAccountingSerializer,
    )
    def get(self, request: Request, run: int) -> Response:
        """Return what became of the responses that were to be kept."""
        return Response(page_accounting(visible_run(request, run)).as_dict())


class RunPagesWarcView(ApiView):
    """WARC files of a run."""

    renderer_classes = (JSONRenderer, AnyContent)

    @extend_schema(
        operation_id="runs_pages_warc",
        summary="Kept pages of a run as one WARC file",
        responses={(200, WARC): OpenApiTypes.BINARY},
    )
    def get(self, request: Request, run: int) -> StreamingHttpResponse:
        """Return all records as they were stored, gzip member by gzip member."""
        found = visible_run(request, run)
        with answered():
            files = warc_files(found)
        if not files:
            raise Http404
        response = streamed(warc_chunks(files), WARC)
        response.headers["Content-Disposition"] = f'attachment; filename="run-{run}.warc.gz"'
        return response


class RunReplaySerializer(KnownFields, serializers.Serializer[Any]):
    """What becomes of requests whose page was not kept."""

    missing = serializers.ChoiceField(
        choices=ReplayMissing.choices, required=False, default=ReplayMissing.FAIL
    )


class RunReplayView(ApiView):
    """A run again, on its kept pages."""

    @extend_schema(
        operation_id="runs_replay",
        summary="Run again on the kept pages of a run",
        request=RunReplaySerializer,
        responses={201: RunSerializer},
    )
    @idempotent
    def post(self, request: Request, run: int) -> Response:
        """Queue a run that reads the kept pages instead of the sites. 409 if none are kept."""
        found = visible_run(request, run)
        require_role(self.person, found.job.project_id, Role.OPERATOR)
        asked = RunReplaySerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        replay = replay_run(
            run=found,
            actor=self.person,
            now=timezone.now(),
            missing=asked.validated_data["missing"],
        )
        return Response(RunSerializer(replay).data, status=status.HTTP_201_CREATED)
