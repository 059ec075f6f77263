"""Stores segment reports of the seed service."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from django.db import transaction

from apps.seeds.models import Frontier, SegmentReport
from apps.seeds.stores.base import BOOKS_FIELDS, Segment

_FIELDS: Final = (
    *BOOKS_FIELDS,
    "size_bytes",
    "filter_expected",
    "filter_bytes",
    "filter_fill",
    "filter_rate",
    "reported_at",
)


@transaction.atomic
def report_segments(
    *, frontier: int, segments: Sequence[Segment], all_segments: Sequence[int], now: datetime
) -> None:
    """Store the counts of ``segments``, and delete rows of segments not in ``all_segments``.

    Does nothing if the frontier has been deleted.
    """
    if not Frontier.objects.select_for_update(no_key=True).filter(pk=frontier).exists():
        return
    SegmentReport.objects.filter(frontier=frontier).exclude(segment__in=all_segments).delete()
    SegmentReport.objects.bulk_create(
        [_report(frontier, segment, now) for segment in segments],
        update_conflicts=True,
        unique_fields=["frontier", "segment"],
        update_fields=_FIELDS,
    )


def _report(frontier: int, segment: Segment, now: datetime) -> SegmentReport:
    state = segment.filter
    return SegmentReport(
        frontier_id=frontier,
        segment=segment.segment,
        **{name: getattr(segment.books, name) for name in BOOKS_FIELDS},
        size_bytes=segment.size_bytes,
        filter_expected=None if state is None else state.expected,
        filter_bytes=None if state is None else state.size_bytes,
        filter_fill=None if state is None else state.fill,
        filter_rate=None if state is None else state.rate,
        reported_at=now,
    )
