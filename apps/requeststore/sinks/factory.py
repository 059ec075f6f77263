"""Opens the sink that the settings of a biz name."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from apps.requeststore.engine.biz import RECORDS_NAME, DestinationKind, Records
from apps.requeststore.engine.errors import BadSetting
from apps.requeststore.sinks.base import NullSink, Sink
from apps.requeststore.sinks.dataset import BothSinks, DatasetSink
from apps.requeststore.sinks.messages import QueueSink
from yardkit.broker import Broker

# PostgreSQL's limit of a name.
MAX_NAME_BYTES = 63


class SinkContext(msgspec.Struct, frozen=True):
    """Context shared by the sinks of a process. ``now`` returns Unix ms."""

    broker: Broker
    now: Callable[[], int]


def producer_of(project_id: int, biz: str) -> str:
    """Return ``biz:7/news``, the producer of the items of a biz."""
    return f"biz:{project_id}/{biz}"


def table_of(project_id: int, biz: str, records: Records) -> str:
    """Return ``records_p7_news``. Raises ``BadSetting``."""
    table = f"records_p{project_id}_{records_name(biz, records)}"
    if len(table) > MAX_NAME_BYTES:
        raise BadSetting(f"records: a table's name has at most {MAX_NAME_BYTES} letters: {table}")
    return table


def queue_of_records(project_id: int, biz: str, records: Records) -> str:
    """Return ``records.p7.news``."""
    return f"records.p{project_id}.{records_name(biz, records)}"


def open_sink(context: SinkContext, *, project_id: int, biz: str, records: Records) -> Sink:
    """Return the sink; its first write connects. Raises ``BadSetting``.

    Tables and files are deliveries of the dataset: see ``services.deliveries``.
    """
    if records.to is DestinationKind.NOWHERE:
        return NullSink()
    if records.to is DestinationKind.TABLE:
        table_of(project_id, biz, records)
    records_name(biz, records)
    dataset = DatasetSink(context.broker, producer_of(project_id, biz))
    if records.to is not DestinationKind.QUEUE:
        return dataset
    queue = queue_of_records(project_id, biz, records)
    return BothSinks(dataset, QueueSink(context.broker, queue, ttl_seconds=records.ttl_seconds))


def records_name(biz: str, records: Records) -> str:
    """Return the name of the table, folder or queue. Raises ``BadSetting``."""
    name = records.name or biz
    if not RECORDS_NAME.fullmatch(name):
        raise BadSetting(f"records: {name!r} is no name; use letters, digits and . _ -")
    return name
