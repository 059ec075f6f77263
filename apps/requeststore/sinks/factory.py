"""Opens the sink that the settings of a biz name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from apps.requeststore.engine.biz import RECORDS_NAME, DestinationKind, Records
from apps.requeststore.engine.errors import BadSetting
from apps.requeststore.sinks.base import NullSink, Sink
from apps.requeststore.sinks.databases import open_database
from apps.requeststore.sinks.json_lines import JsonLinesSink
from apps.requeststore.sinks.messages import QueueSink
from apps.requeststore.sinks.table import MAX_NAME_BYTES, TableSink
from yardkit.broker import Broker


class SinkContext(msgspec.Struct, frozen=True):
    """Context shared by the sinks of a process. ``now`` returns Unix ms; ``process``: its name."""

    records_url: str
    folder: Path
    broker: Broker
    process: str
    now: Callable[[], int]


def table_of(project_id: int, biz: str, records: Records) -> str:
    """Return ``records_p7_news``. Raises ``BadSetting``."""
    table = f"records_p{project_id}_{_name(biz, records)}"
    if len(table) > MAX_NAME_BYTES:
        raise BadSetting(f"records: a table's name has at most {MAX_NAME_BYTES} letters: {table}")
    return table


def folder_of(root: Path, project_id: int, biz: str, records: Records) -> Path:
    """Return ``<RECORDS_DIR>/p7/news``."""
    return root / f"p{project_id}" / _name(biz, records)


def queue_of_records(project_id: int, biz: str, records: Records) -> str:
    """Return ``records.p7.news``."""
    return f"records.p{project_id}.{_name(biz, records)}"


def open_sink(context: SinkContext, *, project_id: int, biz: str, records: Records) -> Sink:
    """Return the sink; its first write connects. Raises ``BadSetting``."""
    if records.to is DestinationKind.NOWHERE:
        return NullSink()
    if records.to is DestinationKind.TABLE:
        return TableSink(open_database(context.records_url), table_of(project_id, biz, records))
    if records.to is DestinationKind.JSON_LINES:
        folder = folder_of(context.folder, project_id, biz, records)
        return JsonLinesSink(folder, process=context.process, now=context.now)
    queue = queue_of_records(project_id, biz, records)
    return QueueSink(context.broker, queue, ttl_seconds=records.ttl_seconds)


def _name(biz: str, records: Records) -> str:
    name = records.name or biz
    if not RECORDS_NAME.fullmatch(name):
        raise BadSetting(f"records: {name!r} is no name; use letters, digits and . _ -")
    return name
