"""Logs of runs and builds over REST, and whole logs as text."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, ClassVar, Final

from asgiref.sync import sync_to_async
from django.http import Http404, StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from apps.access.api.base import ApiView
from apps.joblogs.api.serializers import LogLineSerializer, LogPageSerializer, LogQuerySerializer
from apps.joblogs.models import LogLine
from apps.joblogs.queries import MAX_LINES, after, before, dropped, sees_stream, tail

TEXT: Final = "text/plain"


class _LogView(ApiView):
    """A log of what the address names; whoever sees that sees its log."""

    kind: ClassVar[str]

    def visible_stream(self, pk: int) -> str:
        """The name of the log. Raises ``Http404``."""
        stream = f"{self.kind}:{pk}"
        if not sees_stream(self.person, stream):
            raise Http404
        return stream

    def page(self, request: Request, pk: int) -> Response:
        """The lines that were asked for."""
        stream = self.visible_stream(pk)
        query = LogQuerySerializer(data=request.query_params)
        query.is_valid(raise_exception=True)
        return Response(_page(stream, query.validated_data))


class RunLogView(_LogView):
    """What a run has written (seed S1.18)."""

    kind = "run"

    @extend_schema(
        operation_id="runs_logs_list",
        summary="Lines of a run's log",
        parameters=[LogQuerySerializer],
        responses=LogPageSerializer,
    )
    def get(self, request: Request, run: int) -> Response:
        """A page of lines. To follow a log, ask again with the id of the last line you have."""
        return self.page(request, run)


class BuildLogView(_LogView):
    """What a build has written."""

    kind = "build"

    @extend_schema(
        operation_id="builds_logs_list",
        summary="Lines of a build's log",
        parameters=[LogQuerySerializer],
        responses=LogPageSerializer,
    )
    def get(self, request: Request, build: int) -> Response:
        """A page of lines. To follow a log, ask again with the id of the last line you have."""
        return self.page(request, build)


class PlainText(BaseRenderer):
    """Lets callers ask for text; the only thing it ever renders is an error."""

    media_type = TEXT
    format = "text"
    charset = "utf-8"

    def render(
        self,
        data: Any,
        accepted_media_type: str | None = None,
        renderer_context: Mapping[str, Any] | None = None,
    ) -> str:
        """The error as JSON: programs read its code."""
        return json.dumps(data, ensure_ascii=False, default=str)


class _DownloadView(_LogView):
    renderer_classes = (JSONRenderer, PlainText)

    def download(self, pk: int) -> StreamingHttpResponse:
        """The whole log, a page of lines at a time."""
        stream = self.visible_stream(pk)
        response = StreamingHttpResponse(_text(stream), content_type=f"{TEXT}; charset=utf-8")
        name = stream.replace(":", "-")
        response.headers["Content-Disposition"] = f'attachment; filename="{name}.log"'
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Cache-Control"] = "no-store"
        return response


class RunDownloadView(_DownloadView):
    """The whole log of a run."""

    kind = "run"

    @extend_schema(
        operation_id="runs_logs_download",
        summary="A run's whole log as text",
        responses={(200, TEXT): OpenApiTypes.STR},
    )
    def get(self, request: Request, run: int) -> StreamingHttpResponse:
        """One line of text a line: time, level, source, text."""
        return self.download(run)


class BuildDownloadView(_DownloadView):
    """The whole log of a build."""

    kind = "build"

    @extend_schema(
        operation_id="builds_logs_download",
        summary="A build's whole log as text",
        responses={(200, TEXT): OpenApiTypes.STR},
    )
    def get(self, request: Request, build: int) -> StreamingHttpResponse:
        """One line of text a line: time, level, source, text."""
        return self.download(build)


def _page(stream: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    among = LogLine.objects.matching(
        levels=sorted(asked.get("level", ())), contains=asked.get("contains", "")
    )
    limit = min(asked.get("tail", asked["limit"]), MAX_LINES)
    # One more than is shown tells whether there are others.
    if "tail" in asked:
        found = tail(stream, limit + 1, among=among)
    elif "before" in asked:
        found = before(stream, asked["before"], limit + 1, among=among)
    else:
        found = after(stream, asked.get("after", 0), limit + 1, among=among)
    backwards, more = "tail" in asked or "before" in asked, len(found) > limit
    shown = found[-limit:] if backwards else found[:limit]
    return {
        "results": LogLineSerializer(shown, many=True).data,
        "next": shown[-1].pk if more and not backwards else None,
        "previous": shown[0].pk if more and backwards else None,
        "dropped": dropped(stream),
    }


async def _text(stream: str) -> AsyncIterator[str]:
    """Asynchronous, because the server would gather a synchronous one in memory first."""
    read = sync_to_async(after)
    last = 0
    while lines := await read(stream, last, MAX_LINES):
        last = lines[-1].pk
        yield "".join(map(_written, lines))
    lost = await sync_to_async(dropped)(stream)
    if lost:
        yield f"dropped={lost}\n"


def _written(line: LogLine) -> str:
    words = [f"{line.at:%Y-%m-%d %H:%M:%S}.{line.at.microsecond // 1000:03d}Z"]
    words += [word for word in (line.level, f"{line.source}:") if word != ":" and word]
    return f"{' '.join(words)} {line.text}\n"
