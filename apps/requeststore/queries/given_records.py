"""Records extracted for one request."""

from __future__ import annotations

import json
from contextlib import closing, suppress
from datetime import timedelta
from typing import Any, Final

import msgspec
from django.conf import settings

from apps.datasets.engine.errors import DatasetError
from apps.datasets.engine.filters import FilterOp, ItemFilter
from apps.datasets.engine.item_types import ItemQuery
from apps.datasets.engine.targets.databases import TableChanged, ValuesRejected, open_database
from apps.datasets.models import Dataset
from apps.datasets.queries.items import open_reader
from apps.datasets.states import Origin
from apps.requeststore.engine.biz import Biz, DestinationKind, Records
from apps.requeststore.engine.errors import RequestStoreError
from apps.requeststore.engine.flags import is_own
from apps.requeststore.sinks.base import moment
from apps.requeststore.sinks.dataset import META, incarnation
from apps.requeststore.sinks.factory import table_of
from apps.requeststore.stores.base import StoredRequest
from yardkit.items import columns as names

MOST_RECORDS: Final = 50


class FoundRecords(msgspec.Struct, frozen=True, kw_only=True):
    """Records with their dataset. ``records=None``: unreadable, see ``problem``."""

    to: str
    where: str = ""
    records: list[dict[str, Any]] | None = None
    more: bool = False
    problem: str = ""


def records_given(request: StoredRequest, biz: Biz, *, project_id: int) -> FoundRecords | None:
    """Return at most ``MOST_RECORDS`` records from the dataset; None before the request has ended.

    Records of earlier versions are read from their table.
    """
    if not is_own(request.flag):
        return None
    if biz.records.to is DestinationKind.NOWHERE:
        return FoundRecords(to=biz.records.to.value, records=[])
    dataset = Dataset.objects.filter(
        project_id=project_id, origin=Origin.BIZ, origin_name=request.biz
    ).first()
    to = DestinationKind.DATASET.value
    try:
        records = [] if dataset is None else _of_dataset(dataset, request)
        where = "" if dataset is None else dataset.name
        if not records:
            old = _of_table(project_id, request, biz.records)
            if old:
                to, where = (
                    DestinationKind.TABLE.value,
                    table_of(project_id, request.biz, biz.records),
                )
                records = old
    except (DatasetError, RequestStoreError, ValuesRejected, TableChanged, OSError) as error:
        return FoundRecords(to=to, problem=str(error))
    return FoundRecords(
        to=to, where=where, records=records[:MOST_RECORDS], more=len(records) > MOST_RECORDS
    )


def _of_dataset(dataset: Dataset, request: StoredRequest) -> list[dict[str, Any]]:
    day = moment(request.finished_at).date()
    # Clocks differ, and the items are stored a moment later.
    days = [day + timedelta(days=shift) for shift in (-1, 0, 1)]
    wanted = ItemFilter(names.INCARNATION, FilterOp.EQUALS, incarnation(request.id))
    with open_reader(dataset, days=days) as reader:
        page = reader.page(ItemQuery(filters=(wanted,), limit=MOST_RECORDS + 1))
    return [_without_meta(item.data) for item in page.items]


def _of_table(project_id: int, request: StoredRequest, records: Records) -> list[dict[str, Any]]:
    table = table_of(project_id, request.biz, records)
    with closing(open_database(settings.RECORDS_URL)) as database:
        key = ("request_id", "position")
        rows = database.find(table, key, request.id, MOST_RECORDS + 1)
    return [_shown(row) for row in rows]


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """Convert a row for JSON: ID as text, JSON columns parsed, empty columns omitted."""
    shown = {name: value for name, value in row.items() if value is not None}
    shown["request_id"] = str(row["request_id"])
    if isinstance(shown.get("extra"), str):
        with suppress(ValueError):
            shown["extra"] = json.loads(shown["extra"])
    shown.pop("meta", None)
    return shown


def _without_meta(data: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name != META}
