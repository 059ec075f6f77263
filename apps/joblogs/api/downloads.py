"""REST downloads of whole logs as text or JSON lines."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import UTC
from typing import Any, Final

from asgiref.sync import sync_to_async
from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request

from apps.joblogs.api.serializers import LevelField
from apps.joblogs.api.streams import LogView
from apps.joblogs.services import asked_store, lines_of
from apps.joblogs.stores.base import StoredLine

TEXT: Final = "text/plain"
JSON_LINES: Final = "application/x-ndjson"


class DownloadQuerySerializer(serializers.Serializer[Any]):
    """Levels, time range and format of a download."""

    type = serializers.ChoiceField(
        choices=("log", "jsonl"),
        default="log",
        help_text="`log`: time, level, source, text. `jsonl`: an object a line.",
    )
    level = LevelField()
    since = serializers.DateTimeField(required=False, help_text="Lines from this time on.")
    until = serializers.DateTimeField(required=False, help_text="Lines before this time.")


class PlainText(BaseRenderer):
    """Renderer that makes ``text/plain`` acceptable; downloads are streamed, so it renders errors
    only.
    """

    media_type = TEXT
    format = "text"
    charset = "utf-8"

    def render(
        self,
        data: Any,
        accepted_media_type: str | None = None,
        renderer_context: Mapping[str, Any] | None = None,
    ) -> str:
        """Return the error as JSON, because programs read its code."""
        return json.dumps(data, ensure_ascii=False, default=str)


class JsonLines(PlainText):
    """Renderer that makes the JSON lines type acceptable."""

    media_type = JSON_LINES
    format = "jsonl"


class _DownloadView(LogView):
    renderer_classes = (JSONRenderer, PlainText, JsonLines)

    def download(self, request: Request, pk: int) -> StreamingHttpResponse:
        """Stream the log, one page of lines at a time."""
        stream = self.visible_stream(pk)
        query = DownloadQuerySerializer(data=request.query_params)
        query.is_valid(raise_exception=True)
        values = query.validated_data
        with asked_store() as store:
            # Query first: once the response has started, its status cannot change.
            store.check()
        kind = TEXT if values["type"] == "log" else JSON_LINES
        response = StreamingHttpResponse(
            _written(stream, values), content_type=f"{kind}; charset=utf-8"
        )
        name = f"{stream.replace(':', '-')}.{values['type']}"
        response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Cache-Control"] = "no-store"
        return response


class RunDownloadView(_DownloadView):
    """The log of a run as a file."""

    kind = "run"

    @extend_schema(
        operation_id="runs_logs_download",
        summary="A run's log as a file",
        parameters=[DownloadQuerySerializer],
        responses={(200, TEXT): OpenApiTypes.STR, (200, JSON_LINES): OpenApiTypes.STR},
    )
    def get(self, request: Request, run: int) -> StreamingHttpResponse:
        """Return the log, one line per record; the end states how many lines were dropped, if
        any.
        """
        return self.download(request, run)


class BuildDownloadView(_DownloadView):
    """The log of a build as a file."""

    kind = "build"

    @extend_schema(
        operation_id="builds_logs_download",
        summary="A build's log as a file",
        parameters=[DownloadQuerySerializer],
        responses={(200, TEXT): OpenApiTypes.STR, (200, JSON_LINES): OpenApiTypes.STR},
    )
    def get(self, request: Request, build: int) -> StreamingHttpResponse:
        """Return the log, one line per record; the end states how many lines were dropped, if
        any.
        """
        return self.download(request, build)


async def _written(stream: str, asked: Mapping[str, Any]) -> AsyncIterator[str]:
    """Yield the lines. Asynchronous: the server would buffer a synchronous iterator."""
    write = _text_line if asked["type"] == "log" else _json_line
    pages = lines_of(
        stream, levels=asked.get("level", ()), since=asked.get("since"), until=asked.get("until")
    )
    following = sync_to_async(_following)
    while (lines := await following(pages)) is not None:
        yield "".join(map(write, lines))
    lost = await sync_to_async(_dropped)(stream)
    if lost:
        yield f"dropped={lost}\n" if asked["type"] == "log" else f'{{"dropped": {lost}}}\n'


def _following(pages: Iterator[list[StoredLine]]) -> list[StoredLine] | None:
    return next(pages, None)


def _dropped(stream: str) -> int:
    with asked_store() as store:
        state = store.stream_state(stream)
    return 0 if state is None else state.dropped


def _moment(line: StoredLine) -> str:
    at = line.at.astimezone(UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"


def _text_line(line: StoredLine) -> str:
    words = [_moment(line).replace("T", " ")]
    words += [word for word in (line.level, f"{line.source}:") if word != ":" and word]
    return f"{' '.join(words)} {line.text}\n"


def _json_line(line: StoredLine) -> str:
    shown = {
        "ref": str(line.ref),
        "at": _moment(line),
        "level": line.level,
        "source": line.source,
        "text": line.text,
    }
    return json.dumps(shown, ensure_ascii=False) + "\n"
