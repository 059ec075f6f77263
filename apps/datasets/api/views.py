"""Datasets and items over REST."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any, Final

import msgspec
from asgiref.sync import sync_to_async
from django.http import Http404, StreamingHttpResponse
from django.middleware.gzip import re_accepts_gzip
from django.shortcuts import get_object_or_404
from django.utils.cache import patch_vary_headers
from django.utils.translation import gettext as _
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.decorators import action
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from apps.access.api.base import ApiView, WriteViewSet
from apps.access.states import Role
from apps.datasets.api.filters import DatasetFilter
from apps.datasets.api.serializers import (
    AccountingSerializer,
    CompareQuerySerializer,
    ComparisonSerializer,
    DatasetRunSerializer,
    DatasetSerializer,
    FieldQuerySerializer,
    FieldSummarySerializer,
    FieldValuesSerializer,
    ItemPageSerializer,
    ItemQuerySerializer,
    PinSerializer,
    fields_of,
    query_of,
)
from apps.datasets.engine.errors import BadItemQuery, DataUnavailable
from apps.datasets.engine.exports import CONTENT_TYPES, FORMATS, check_rows
from apps.datasets.engine.item_types import Item, ItemPage, ItemQuery
from apps.datasets.engine.reader import ItemReader
from apps.datasets.errors import ItemQueryRefused, ItemsUnavailable
from apps.datasets.models import Dataset, DatasetRun
from apps.datasets.queries.items import (
    dataset_of_run,
    open_reader,
    previous_run,
    run_accounting,
    summaries,
)
from apps.datasets.services.changes import change_dataset, delete_run_data, pin_run
from apps.datasets.texts import text_of
from apps.jobs.models import Run
from apps.runtime.services.objects import shared_objects
from yardkit.items.columns import Columns

FORMAT: Final = OpenApiParameter(
    "format", enum=list(FORMATS), default="json", description="json is paged, others are streamed."
)

# Formats that are not compressed by themselves.
_TEXTS: Final = ("json", "jsonl", "csv")
# As fast as items are read.
_GZIP_LEVEL: Final = 1


@contextmanager
def answered() -> Iterator[None]:
    """Turn errors of the reader into answers."""
    try:
        yield
    except BadItemQuery as error:
        raise ItemQueryRefused(text_of(error)) from error
    except DataUnavailable as error:
        raise ItemsUnavailable(text_of(error)) from error


class _Download(BaseRenderer):
    """Makes a format acceptable; downloads are streamed, so it renders errors only."""

    charset = None

    def render(self, data: Any, *args: Any, **kwargs: Any) -> bytes:
        """Return the error as JSON, because programs read its code."""
        return JSONRenderer().render(data)


_RENDERERS: Final = [
    JSONRenderer,
    *(
        type(
            f"_{name.title()}Renderer",
            (_Download,),
            {"format": name, "media_type": CONTENT_TYPES[name].partition(";")[0]},
        )
        for name in FORMATS
        if name != "json"
    ),
]


class ItemsBaseView(ApiView):
    """Rows of a dataset: a page, or a stream of all in another format."""

    renderer_classes = _RENDERERS

    def items(self, request: Request, dataset: Dataset | None, run: int | None) -> Any:
        """Return a page as JSON, or a stream of another format."""
        if dataset is None:
            # A run without items has none of its own: no files and no fields.
            reader = ItemReader(shared_objects(), [], Columns())
        else:
            reader = open_reader(dataset, None if run is None else [run])
        name = f"dataset-{dataset.pk}" if run is None and dataset else f"run-{run}"
        return self.read(request, reader, name)

    def read(
        self, request: Request, reader: ItemReader, name: str, *, every_field: bool = True
    ) -> Any:
        """Return what a request asks for. ``every_field``: without a choice, of the row as it is.

        ``name``: that of the file to download, without its suffix.
        """
        asked = ItemQuerySerializer(data=flat(request))
        asked.is_valid(raise_exception=True)
        query, fields = query_of(asked.validated_data), fields_of(asked.validated_data)
        export = request.accepted_renderer.format
        streams = export != "json" or "download" in request.query_params
        if not streams:
            with answered(), reader:
                page = reader.page(query)
                return Response(
                    {
                        "results": [self.shown(item, fields) for item in page.items],
                        "next": page.next or None,
                        "last": page.last or None,
                    }
                )
        return _streamed(
            reader,
            query,
            fields or ([] if every_field else reader.fields),
            export,
            f"{name}.{export}",
            packed=export in _TEXTS and _accepts_gzip(request),
        )

    def shown(self, item: Item, fields: Sequence[str]) -> dict[str, Any]:
        """Return a row of a page."""
        return _shown(item, fields)


class RunItemsView(ItemsBaseView):
    """Items of a run."""

    @extend_schema(
        operation_id="runs_items",
        summary="Items of a run",
        parameters=[ItemQuerySerializer, FORMAT],
        responses={200: ItemPageSerializer, (200, "text/csv"): OpenApiTypes.BINARY},
    )
    def get(self, request: Request, run: int) -> Any:
        """Return a page of items; in other formats than json, or with `download`, all of them."""
        found = visible_run(request, run)
        return self.items(request, dataset_of_run(found), run)


class DatasetItemsView(ItemsBaseView):
    """Items of a dataset over all runs."""

    @extend_schema(
        operation_id="datasets_items",
        summary="Items of a dataset",
        parameters=[ItemQuerySerializer, FORMAT],
        responses={200: ItemPageSerializer, (200, "text/csv"): OpenApiTypes.BINARY},
    )
    def get(self, request: Request, dataset: int) -> Any:
        """Return a page of items; in other formats than json, or with `download`, all of them."""
        found = get_object_or_404(Dataset.objects.visible_to(request.user), pk=dataset)
        return self.items(request, found, None)


class RunAccountingView(ApiView):
    """Accounting of a run's items."""

    @extend_schema(
        operation_id="runs_items_accounting",
        summary="Accounting of a run's items",
        responses=AccountingSerializer,
    )
    def get(self, request: Request, run: int) -> Response:
        """Return what became of the items that the run has yielded."""
        visible_run(request, run)
        return Response(run_accounting(run).as_dict())


class RunItemStatisticsView(ApiView):
    """Fields of a run's items."""

    @extend_schema(
        operation_id="runs_items_fields",
        summary="Fields of a run's items",
        responses=FieldSummarySerializer(many=True),
    )
    def get(self, request: Request, run: int) -> Response:
        """Return each field with its fill rate, types and limits."""
        visible_run(request, run)
        rows = list(DatasetRun.objects.of_items().filter(run_number=run))
        return Response(FieldSummarySerializer(summaries(rows), many=True).data)


class RunFieldValuesView(ApiView):
    """Values of one field."""

    @extend_schema(
        operation_id="runs_items_values",
        summary="Values of one field of a run's items",
        parameters=[FieldQuerySerializer],
        responses=FieldValuesSerializer,
    )
    def get(self, request: Request, run: int) -> Response:
        """Return distinct and most frequent values, and a histogram of numbers."""
        found = visible_run(request, run)
        asked = FieldQuerySerializer(data=request.query_params)
        asked.is_valid(raise_exception=True)
        dataset = dataset_of_run(found)
        if dataset is None:
            raise Http404
        with answered(), open_reader(dataset, [run]) as reader:
            values = reader.values(asked.validated_data["field"], ItemQuery())
        return Response(msgspec.to_builtins(values))


class RunComparisonView(ApiView):
    """A run compared with another one."""

    @extend_schema(
        operation_id="runs_compare",
        summary="A run's items compared with those of an earlier run",
        parameters=[CompareQuerySerializer],
        responses=ComparisonSerializer,
    )
    def get(self, request: Request, run: int) -> Response:
        """Return numbers of added, removed, changed and equal items by key, and a page of one."""
        found = visible_run(request, run)
        asked = CompareQuerySerializer(data=request.query_params)
        asked.is_valid(raise_exception=True)
        values = asked.validated_data
        dataset = dataset_of_run(found)
        if dataset is None:
            raise Http404
        other = values.get("with") or previous_run(dataset, run)
        if other is None:
            raise ItemQueryRefused(_("There is no earlier run to compare with."))
        if not dataset.runs.filter(run_number=other).exists():
            raise ItemQueryRefused(_("Run %(run)d has no items in this dataset.") % {"run": other})
        with answered(), open_reader(dataset, [other, run]) as reader:
            counts = reader.compare(other, run)
            items, following = reader.compared(
                other, run, values["kind"], limit=values["limit"], after=values.get("cursor", "")
            )
        return Response(
            {
                "old": other,
                "new": run,
                **msgspec.to_builtins(counts),
                "kind": values["kind"],
                "results": [
                    {"key": item.key, "fields": item.fields, "old": item.old, "new": item.new}
                    for item in items
                ],
                "next": following or None,
            }
        )


class DatasetViewSet(WriteViewSet[Dataset]):
    """Datasets; they are made by their first item."""

    queryset = Dataset.objects.select_related("project")
    serializer_class = DatasetSerializer
    http_method_names = ["get", "patch"]
    filterset_class = DatasetFilter
    required_roles = {"pin": Role.OPERATOR, "delete_data": Role.EDITOR}

    def update_object(self, obj: Dataset, values: dict[str, Any]) -> Dataset:
        return change_dataset(dataset=obj, actor=self.person, **values)

    @extend_schema(
        summary="Data of each run of a dataset",
        responses=DatasetRunSerializer(many=True),
        filters=False,
    )
    @action(detail=True, methods=["get"], filterset_class=None)
    def runs(self, request: Request, pk: int) -> Response:
        """Return the data of runs, newest first."""
        runs: Any = self.get_object().runs.all()
        rows: Any = self.paginate_queryset(runs)
        return self.get_paginated_response(DatasetRunSerializer(rows, many=True).data)

    @extend_schema(summary="Items of one key over all runs", responses=ItemPageSerializer)
    @action(detail=True, methods=["get"], pagination_class=None)
    def history(self, request: Request, pk: int) -> Response:
        """Return the items whose key fields have the values of `key`, in order; newest first."""
        dataset = self.get_object()
        with answered(), open_reader(dataset) as reader:
            items = reader.history(request.query_params.getlist("key"))
        return Response(_page(ItemPage(items, ""), []))

    @extend_schema(
        summary="Pin the data of a run, so that the retention keeps it, or unpin it",
        request=PinSerializer,
        responses=DatasetRunSerializer,
    )
    @action(detail=True, methods=["patch"], url_path=r"runs/(?P<run>[0-9]{1,18})")
    def pin(self, request: Request, pk: int, run: str) -> Response:
        """Change `pinned`, the one thing of a run's data that people decide."""
        row = get_object_or_404(self.get_object().runs, run_number=int(run))
        asked = PinSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        pin_run(run=row, actor=self.person, pinned=asked.validated_data["pinned"])
        row.refresh_from_db()
        return Response(DatasetRunSerializer(row).data)

    @extend_schema(
        summary="Delete the items and files of a run",
        operation_id="datasets_runs_data_destroy",
        responses={204: None},
    )
    def delete_data(self, request: Request, pk: int, run: int) -> Response:
        """Delete them within a minute. 409 while the run is active, or if its data is pinned."""
        row = get_object_or_404(self.get_object().runs, run_number=run, run_number__gt=0)
        delete_run_data(run=row, actor=self.person)
        return Response(status=204)


def visible_run(request: Request, run: int) -> Run:
    """Return a run that the caller may see. Raises ``Http404``."""
    return get_object_or_404(Run.objects.visible_to(request.user).select_related("job"), pk=run)


def flat(request: Request) -> dict[str, Any]:
    values: dict[str, Any] = request.query_params.dict()
    if "filter" in values:
        values["filter"] = request.query_params.getlist("filter")
    return values


def _page(page: ItemPage, fields: Sequence[str]) -> dict[str, Any]:
    return {
        "results": [_shown(item, fields) for item in page.items],
        "next": page.next or None,
        "last": page.last or None,
    }


def _shown(item: Item, fields: Sequence[str]) -> dict[str, Any]:
    data = item.data
    if fields:
        data = {name: data[name] for name in fields if name in data}
    return {
        "id": item.id,
        "run": item.run,
        "seq": item.seq,
        "at": item.at,
        "url": item.url,
        "flags": item.flags,
        "item": data,
    }


def _accepts_gzip(request: Request) -> bool:
    return bool(re_accepts_gzip.search(request.headers.get("Accept-Encoding", "")))


def _streamed(
    reader: ItemReader,
    query: ItemQuery,
    fields: Sequence[str],
    export: str,
    name: str,
    *,
    packed: bool,
) -> StreamingHttpResponse:
    # The first pieces are made before the answer begins, since its status cannot change afterwards.
    # Two: some formats begin with a head, before they query.
    with answered():
        reader.__enter__()
        try:
            reader.check_fields(fields)
            check_rows(reader, query, export)
            pieces = FORMATS[export](reader, query, fields)
            first = b"".join(islice(pieces, 2))
            if packed:
                first, pieces = b"", _gzipped(chain((first,), pieces))
        except BaseException:
            reader.__exit__(None, None, None)
            raise
    response = _attachment(_pieces(first, pieces), export, name)
    if export in _TEXTS:
        patch_vary_headers(response, ("Accept-Encoding",))
    if packed:
        response.headers["Content-Encoding"] = "gzip"
    # Called in the thread of the pieces, also when the client leaves before the first one.
    response._resource_closers.append(lambda: reader.__exit__(None, None, None))  # type: ignore[attr-defined]  # Django has no public one
    return response


def _attachment(content: AsyncIterator[bytes], export: str, name: str) -> StreamingHttpResponse:
    response = StreamingHttpResponse(content, content_type=CONTENT_TYPES[export])
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Cache-Control"] = "no-store"
    return response


def _gzipped(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Compress an export in the thread that makes it; Django's middleware would block others."""
    packer = zlib.compressobj(_GZIP_LEVEL, wbits=zlib.MAX_WBITS | 16)
    for piece in pieces:
        yield packer.compress(piece)
    yield packer.flush()


async def _pieces(first: bytes, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the rest. Asynchronous: the server would buffer a synchronous iterator."""
    following = sync_to_async(_next)
    piece: bytes | None = first
    while piece is not None:
        yield piece
        piece = await following(pieces)


def _next(pieces: Iterator[bytes]) -> bytes | None:
    return next(pieces, None)
