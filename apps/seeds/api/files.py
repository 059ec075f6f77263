"""REST import and export of a frontier's seeds as files."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

from asgiref.sync import sync_to_async
from django.http import StreamingHttpResponse
from django.utils.translation import gettext_lazy as _
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.access.api.idempotency import repeatable
from apps.seeds import services
from apps.seeds.api.call_serializers import STATES
from apps.seeds.api.imports import ImportCounts, take_in
from apps.seeds.api.lines import JSON_LINES, JsonlParser, Lines, NdjsonParser, TextParser, written
from apps.seeds.api.moments import MillisecondsField
from apps.seeds.models import Frontier
from apps.seeds.services.management import manage
from apps.seeds.stores.base import SeedPage
from apps.seeds.stores.operations import ReadSegment
from yardkit.protocol.seeds import KnownSeed

_PAGE: Final = 1000
_GZIP: Final = "application/gzip"


class ExportQuerySerializer(serializers.Serializer[Any]):
    """Filters and format of an export."""

    segment = MillisecondsField(
        required=False, help_text=_("Only seeds of this segment; 0: the default segment.")
    )
    state = serializers.MultipleChoiceField(
        choices=STATES, required=False, help_text=_("Only seeds in one of these states.")
    )
    gzip = serializers.BooleanField(default=False, help_text=_("As a compressed file."))


class ProblemSerializer(serializers.Serializer[Any]):
    """Reason why a line was rejected."""

    line = serializers.IntegerField(help_text=_("Counted from 1."))
    code = serializers.CharField()
    text = serializers.CharField()


class ImportedSerializer(serializers.Serializer[Any]):
    """Result of an import."""

    lines = serializers.IntegerField(help_text=_("Number of lines without empty ones."))
    new = serializers.IntegerField()
    duplicates = serializers.IntegerField()
    refused = serializers.IntegerField()
    problems = ProblemSerializer(many=True, help_text=_("The first 20 problems."))


class SeedFilesMixin:
    """Import and export, for the view set of frontiers."""

    @extend_schema(
        request={JSON_LINES: OpenApiTypes.STR, "text/plain": OpenApiTypes.STR},
        responses=ImportedSerializer,
    )
    @action(
        detail=True,
        methods=["post"],
        url_path="import",
        url_name="import",
        parser_classes=[NdjsonParser, JsonlParser, TextParser],
    )
    @repeatable
    def import_file(self: Any, request: Request, pk: str | None = None) -> Response:
        """Add the seeds of a file of at most 256 MiB, optionally compressed (`Content-Encoding`).

        JSON lines: each a text, a seed, or a line of an export, which keeps its state. As
        `text/plain`: each line is the data of a seed. A rejected line does not affect the others;
        importing the same file again adds nothing.
        """
        frontier = self.get_object()
        lines = request.data
        tally = take_in(frontier, lines) if isinstance(lines, Lines) else ImportCounts()
        return Response(ImportedSerializer(tally).data)

    @extend_schema(
        parameters=[ExportQuerySerializer],
        responses={(200, JSON_LINES): OpenApiTypes.STR, (200, _GZIP): OpenApiTypes.BINARY},
        filters=False,
    )
    @action(detail=True, methods=["get"], pagination_class=None)
    def export(self: Any, request: Request, pk: str | None = None) -> StreamingHttpResponse:
        """Stream all seeds with their states as JSON lines, segment by segment, in the format of
        `import`.

        Changes during the export may or may not be included. If the export fails, the connection is
        closed early, without a proper end.
        """
        frontier = self.get_object()
        query = ExportQuerySerializer(data=request.query_params)
        query.is_valid(raise_exception=True)
        values = query.validated_data
        states = frozenset(values.get("state", ()))
        if "segment" in values:
            segments = [values["segment"]]
        else:
            segments = [existing.segment for existing in services.show_segments(frontier)]
        # Query the service before the response starts, so that an outage gives an error status.
        first = _page(frontier, segments[0], b"") if segments else None
        pages = _pages(frontier, segments, first, states)
        compressed = values["gzip"]
        response = StreamingHttpResponse(
            _packed(pages) if compressed else pages,
            content_type=_GZIP if compressed else JSON_LINES,
        )
        name = f"{frontier.name}.jsonl{'.gz' if compressed else ''}"
        response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Cache-Control"] = "no-store"
        return response


def _page(frontier: Frontier, segment: int, after: bytes) -> SeedPage:
    page: SeedPage = manage(frontier, ReadSegment(segment, after, _PAGE), patience=30.0)
    return page


async def _pages(
    frontier: Frontier, segments: list[int], page: SeedPage | None, states: frozenset[str]
) -> AsyncIterator[bytes]:
    """Yield the lines page by page. Asynchronous: the server would buffer a synchronous
    iterator.
    """
    read = sync_to_async(_page)
    for segment in segments:
        if page is None:
            page = await read(frontier, segment, b"")
        while True:
            if lines := b"".join(_written(page.seeds, states)):
                yield lines
            if page.after is None:
                break
            page = await read(frontier, segment, page.after)
        page = None


def _written(seeds: list[KnownSeed], states: frozenset[str]) -> Iterator[bytes]:
    for seed in seeds:
        if not states or seed.state.name.lower() in states:
            yield written(seed)


async def _packed(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    pack = zlib.compressobj(wbits=31)
    async for piece in pieces:
        if packed := pack.compress(piece):
            yield packed
    yield pack.flush()
