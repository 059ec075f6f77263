"""Statistics of a frontier: its segments with their counts and filters."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db.models import Sum
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.seeds import services
from apps.seeds.api.moments import beginning
from apps.seeds.api.serializers import StatsQuerySerializer, StatsSerializer
from apps.seeds.models import Frontier, SegmentReport
from apps.seeds.stores.base import BOOKS_FIELDS, Segment, SegmentCounts


class StatsMixin:
    """Statistics, for the view set of frontiers."""

    @extend_schema(parameters=[StatsQuerySerializer], responses=StatsSerializer, filters=False)
    @action(detail=True, methods=["get"], pagination_class=None)
    def stats(self: Any, request: Request, pk: str | None = None) -> Response:
        """Return segments with counts and filters, a few seconds old, or current with `live`."""
        frontier = self.get_object()
        query = StatsQuerySerializer(data=request.query_params)
        query.is_valid(raise_exception=True)
        values = query.validated_data
        after, limit = values.get("after", -1), values["limit"]
        shown = _live if values["live"] else _reported
        return Response(shown(frontier, after, limit))


def _reported(frontier: Frontier, after: int, limit: int) -> dict[str, Any]:
    reports = SegmentReport.objects.filter(frontier=frontier)
    sums = reports.aggregate(**{name: Sum(name) for name in BOOKS_FIELDS})
    totals = SegmentCounts(**{name: value or 0 for name, value in sums.items()})
    rows = list(reports.filter(segment__gt=after).order_by("segment")[: limit + 1])
    shown = [_segment(_as_segment(row), _filter_of(row), row.reported_at) for row in rows[:limit]]
    return _stats(totals, reports.count(), shown, more=len(rows) > limit, live=False)


def _live(frontier: Frontier, after: int, limit: int) -> dict[str, Any]:
    segments = services.show_segments(frontier)
    now = timezone.now()
    totals = SegmentCounts()
    for segment in segments:
        totals = totals.plus(segment.books)
    rest = [segment for segment in segments if segment.segment > after]
    shown = [_segment(segment, _filter(segment), now) for segment in rest[:limit]]
    return _stats(totals, len(segments), shown, more=len(rest) > limit, live=True)


def _stats(
    totals: SegmentCounts, number: int, shown: Sequence[dict[str, Any]], *, more: bool, live: bool
) -> dict[str, Any]:
    return {
        "live": live,
        "totals": _books(totals),
        "balances": totals.balance(),
        "segments_in_all": number,
        "results": list(shown),
        "next": str(shown[-1]["segment"]) if more else None,
    }


def _books(books: SegmentCounts) -> dict[str, int]:
    return {name: getattr(books, name) for name in BOOKS_FIELDS}


def _segment(
    segment: Segment, filter_: dict[str, Any] | None, reported_at: datetime
) -> dict[str, Any]:
    return {
        "segment": segment.segment,
        "begins_at": beginning(segment.segment),
        "books": _books(segment.books),
        "balances": segment.books.balance(),
        "size_bytes": segment.size_bytes,
        "filter": filter_,
        "reported_at": reported_at,
    }


def _as_segment(row: SegmentReport) -> Segment:
    books = SegmentCounts(**{name: getattr(row, name) for name in BOOKS_FIELDS})
    return Segment(row.segment, books, row.size_bytes, None)


def _filter_of(row: SegmentReport) -> dict[str, Any] | None:
    if row.filter_expected is None:
        return None
    return {
        "expected": row.filter_expected,
        "bytes": row.filter_bytes,
        "fill": row.filter_fill,
        "false_positive_rate": row.filter_rate,
    }


def _filter(segment: Segment) -> dict[str, Any] | None:
    state = segment.filter
    if state is None:
        return None
    return {
        "expected": state.expected,
        "bytes": state.size_bytes,
        "fill": state.fill,
        "false_positive_rate": state.rate,
    }
