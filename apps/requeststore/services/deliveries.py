"""Deliveries that the settings of a biz ask for: tables and files of its records."""

from __future__ import annotations

import logging
from contextlib import closing

from django.conf import settings

from apps.datasets.engine.targets.base import BadTarget, TargetUnavailable
from apps.datasets.engine.targets.databases import TableChanged, open_database
from apps.datasets.models import Dataset
from apps.datasets.services.datasets import destination
from apps.datasets.services.deliveries import ensure, unneeded
from apps.requeststore.engine.biz import DestinationKind
from apps.requeststore.engine.errors import BadSetting
from apps.requeststore.services.store import BoundBiz
from apps.requeststore.sinks.factory import producer_of, records_name, table_of

logger = logging.getLogger(__name__)

# Name of the delivery that belongs to the settings of a biz.
NAME = "records"
# One file for each chunk, by day as the files of earlier versions.
_TEMPLATE = "{date}.{batch}-{offset}.{format}"


def ensure_delivery(bound: BoundBiz) -> None:
    """Create, change or pause the delivery that ``records`` of a biz asks for.

    A biz without ``records`` whose table exists keeps it: earlier versions wrote tables by
    default.
    """
    records = bound.settings.records
    if records.to is DestinationKind.NOWHERE:
        return
    dataset = Dataset.objects.get(
        pk=destination(producer_of(bound.project_id, bound.name)).dataset_id
    )
    try:
        name = records_name(bound.name, records)
        if records.to is DestinationKind.TABLE or (
            records.to is DestinationKind.DATASET and _has_table(bound)
        ):
            options = {"table": name, "layout": "records"}
            ensure(dataset=dataset, name=NAME, kind="table", options=options)
        elif records.to is DestinationKind.JSON_LINES:
            options = {"folder": name, "format": "jsonl", "template": _TEMPLATE}
            ensure(dataset=dataset, name=NAME, kind="folder", options=options)
        else:
            unneeded(dataset=dataset, name=NAME)
    except BadSetting as error:
        # The worker of the biz reports it, and does not start.
        logger.debug("%s: no delivery: %s", bound.name, error)


def _has_table(bound: BoundBiz) -> bool:
    try:
        with closing(open_database(settings.RECORDS_URL)) as database:
            table = table_of(bound.project_id, bound.name, bound.settings.records)
            return bool(database.columns(table))
    except (TargetUnavailable, TableChanged, BadTarget) as error:
        logger.warning("%s: the table of records cannot be looked at: %s", bound.name, error)
        return False
