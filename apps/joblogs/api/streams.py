"""REST API of the logs of runs and builds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from apps.access.api.base import ApiView
from apps.joblogs.api.serializers import FirstErrorSerializer, LogPageSerializer, LogQuerySerializer
from apps.joblogs.queries import sees_stream
from apps.joblogs.services import LogPage, PageRequest, first_error, read_log


class LogView(ApiView):
    """Log of the run or build in the URL; the permission is that of the run or build."""

    kind: ClassVar[str]

    def visible_stream(self, pk: int) -> str:
        """Return the stream name of a visible run or build. Raises ``Http404``."""
        stream = f"{self.kind}:{pk}"
        if not sees_stream(self.person, stream):
            raise Http404
        return stream

    def page(self, request: Request, pk: int) -> Response:
        """Return the requested page."""
        stream = self.visible_stream(pk)
        query = LogQuerySerializer(data=request.query_params)
        query.is_valid(raise_exception=True)
        page = read_log(stream, _asked(query.validated_data))
        return Response(LogPageSerializer(_shown(page)).data)


class RunLogView(LogView):
    """Log of a run."""

    kind = "run"

    @extend_schema(
        operation_id="runs_logs_list",
        summary="Lines of a run's log",
        parameters=[LogQuerySerializer],
        responses=LogPageSerializer,
    )
    def get(self, request: Request, run: int) -> Response:
        """Return a page of lines. To follow a log, ask again with the place of the last line you
        have.
        """
        return self.page(request, run)


class BuildLogView(LogView):
    """Log of a build."""

    kind = "build"

    @extend_schema(
        operation_id="builds_logs_list",
        summary="Lines of a build's log",
        parameters=[LogQuerySerializer],
        responses=LogPageSerializer,
    )
    def get(self, request: Request, build: int) -> Response:
        """A page of lines. To follow a log, ask again with the place of the last line you have."""
        return self.page(request, build)


class RunFirstErrorView(LogView):
    """First error of a run."""

    kind = "run"

    @extend_schema(
        operation_id="runs_logs_first_error",
        summary="The first error of a run",
        responses=FirstErrorSerializer,
    )
    def get(self, request: Request, run: int) -> Response:
        """Return its first line of level ERROR or CRITICAL."""
        line = first_error(self.visible_stream(run))
        return Response(FirstErrorSerializer({"line": line}).data)


class BuildFirstErrorView(LogView):
    """First error of a build."""

    kind = "build"

    @extend_schema(
        operation_id="builds_logs_first_error",
        summary="The first error of a build",
        responses=FirstErrorSerializer,
    )
    def get(self, request: Request, build: int) -> Response:
        """Return its first line of level ERROR or CRITICAL."""
        line = first_error(self.visible_stream(build))
        return Response(FirstErrorSerializer({"line": line}).data)


def _asked(values: Mapping[str, Any]) -> PageRequest:
    return PageRequest(
        limit=values.get("tail", values["limit"]),
        after=values.get("after"),
        before=values.get("before"),
        around=values.get("around"),
        tail="tail" in values,
        levels=values.get("level", ()),
        contains=values.get("contains", ""),
    )


def _shown(page: LogPage) -> dict[str, Any]:
    state, lines = page.state, page.lines
    missing = {} if state is None else state.missing
    return {
        "results": lines,
        "next": lines[-1].ref if page.newer and lines else None,
        "previous": lines[0].ref if page.older and lines else None,
        "dropped": 0 if state is None else state.dropped,
        "forgotten": 0 if state is None else state.forgotten,
        "missing": [
            {"boot": boot, "first": first, "last": last}
            for boot, spans in sorted(missing.items())
            for first, last in spans
        ],
    }
