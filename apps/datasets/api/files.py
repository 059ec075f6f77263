"""REST API of the files that runs keep."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, ClassVar, Final

from asgiref.sync import sync_to_async
from django.http import Http404, StreamingHttpResponse
from django.utils.http import content_disposition_header
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from apps.access.api.base import ApiView
from apps.access.api.pagination import KeysetPagination, PageQuerySerializer, PageSerializer
from apps.access.middleware import POLICY_HEADER
from apps.datasets.api.renderers import AnyContent
from apps.datasets.api.views import visible_run
from apps.datasets.errors import ItemsUnavailable
from apps.datasets.models import StoredFile
from apps.datasets.queries.files import IMAGE_TYPES, files_of_run
from apps.datasets.services.files import content
from yardkit.objects import ObjectStoreError

BYTES: Final = "application/octet-stream"
# Whatever a file holds, a browser runs nothing of it.
_POLICY: Final = "sandbox; default-src 'none'; img-src 'self'; style-src 'unsafe-inline'"


class StoredFileSerializer(serializers.ModelSerializer[StoredFile]):
    """File that a run keeps."""

    stored_at = serializers.DateTimeField(source="complete_at", read_only=True)

    class Meta:
        model = StoredFile
        fields = ["id", "name", "content_type", "size", "sha256", "stored_at"]
        read_only_fields = fields


class FileQuerySerializer(PageQuerySerializer):
    """Page and name."""

    name = serializers.CharField(
        required=False, max_length=500, help_text="Only files with exactly this name."
    )


class FilePageSerializer(PageSerializer):
    """Page of files."""

    results = StoredFileSerializer(many=True)


class ContentQuerySerializer(serializers.Serializer[Any]):
    """How a browser gets a file."""

    inline = serializers.BooleanField(
        default=False, help_text="Show images in the browser; other files are always saved."
    )


class RunFilesView(ApiView):
    """Files of a run."""

    ordering: ClassVar = ("id",)

    @extend_schema(
        operation_id="runs_files_list",
        summary="Files that a run keeps",
        parameters=[FileQuerySerializer],
        responses=FilePageSerializer,
    )
    def get(self, request: Request, run: int) -> Response:
        """Return the complete files, in the order in which they arrived."""
        asked = FileQuerySerializer(data=request.query_params)
        asked.is_valid(raise_exception=True)
        rows = files_of_run(visible_run(request, run))
        if "name" in asked.validated_data:
            rows = rows.filter(name=asked.validated_data["name"])
        paginator = KeysetPagination()
        page = paginator.paginate_queryset(rows, request, self)
        return paginator.get_paginated_response(StoredFileSerializer(page, many=True).data)


class RunFileView(ApiView):
    """Content of one file of a run."""

    renderer_classes = (JSONRenderer, AnyContent)

    @extend_schema(
        operation_id="runs_files_download",
        summary="Content of a file that a run keeps",
        parameters=[ContentQuerySerializer],
        responses={(200, BYTES): OpenApiTypes.BINARY},
    )
    def get(self, request: Request, run: int, file: int) -> StreamingHttpResponse:
        """Return the bytes as they were stored. Only images of known types may be shown inline."""
        asked = ContentQuerySerializer(data=request.query_params)
        asked.is_valid(raise_exception=True)
        row = files_of_run(visible_run(request, run)).filter(pk=file).first()
        if row is None:
            raise Http404
        is_image = row.content_type in IMAGE_TYPES
        response = streamed(content(row), row.content_type if is_image else BYTES)
        disposition = content_disposition_header(
            not (is_image and asked.validated_data["inline"]), row.name.rpartition("/")[2]
        )
        response.headers["Content-Disposition"] = disposition or "attachment"
        response.headers["Content-Length"] = str(row.size)
        response.headers[POLICY_HEADER] = _POLICY
        # The content of an ID never changes.
        response.headers["Cache-Control"] = "private, max-age=86400, immutable"
        return response


def streamed(chunks: Iterator[bytes], content_type: str) -> StreamingHttpResponse:
    """Return a response of objects. Raises ``ItemsUnavailable`` if the first one is not there."""
    try:
        # Read first: once the response has started, its status cannot change.
        first = next(chunks, b"")
    except ObjectStoreError as error:
        raise ItemsUnavailable(str(error)) from error
    response = StreamingHttpResponse(_asynchronous(first, chunks), content_type=content_type)
    response.headers["X-Content-Type-Options"] = "nosniff"
    return response


async def _asynchronous(first: bytes, rest: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the content. Asynchronous: the server would buffer a synchronous iterator."""
    chunk: bytes | None = first
    following = sync_to_async(_following)
    while chunk is not None:
        yield chunk
        chunk = await following(rest)


def _following(chunks: Iterator[bytes]) -> bytes | None:
    return next(chunks, None)
