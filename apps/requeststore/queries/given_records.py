"""Records extracted for one request."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings

from apps.requeststore.engine.biz import Biz
from apps.requeststore.engine.flags import is_own
from apps.requeststore.sinks.stored_records import FoundRecords, records_of
from apps.requeststore.stores.base import StoredRequest


def records_given(request: StoredRequest, biz: Biz, *, project_id: int) -> FoundRecords | None:
    """Read them from the destination in the current settings; None before the request has
    ended.
    """
    if not is_own(request.flag):
        return None
    return records_of(
        request.id,
        project_id=project_id,
        biz=request.biz,
        records=biz.records,
        finished_at=request.finished_at,
        records_url=settings.RECORDS_URL,
        folder=Path(settings.RECORDS_DIR),
    )
