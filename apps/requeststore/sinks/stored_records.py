"""Reads the records of one request back from their destination."""

from __future__ import annotations

import json
import mmap
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec

from apps.requeststore.engine.biz import DestinationKind, Records
from apps.requeststore.engine.errors import RequestStoreError
from apps.requeststore.sinks.base import moment
from apps.requeststore.sinks.databases import TableChanged, ValuesRejected, open_database
from apps.requeststore.sinks.factory import folder_of, queue_of_records, table_of
from apps.requeststore.sinks.table import KEY

MOST_RECORDS: Final = 50
# Bytes searched per day of files; the page waits for it.
MOST_BYTES: Final = 512 * 1024 * 1024


class FoundRecords(msgspec.Struct, frozen=True, kw_only=True):
    """Records with their table, folder or queue. ``records=None``: unreadable, see ``problem``."""

    to: str
    where: str = ""
    records: list[dict[str, Any]] | None = None
    more: bool = False
    problem: str = ""


def records_of(
    request_id: int,
    *,
    project_id: int,
    biz: str,
    records: Records,
    finished_at: int,
    records_url: str,
    folder: Path,
) -> FoundRecords:
    """Return at most ``MOST_RECORDS`` records; files only of this host. Never raises."""
    to = records.to.value
    try:
        if records.to is DestinationKind.TABLE:
            where = table_of(project_id, biz, records)
            found = _of_table(records_url, where, request_id)
        elif records.to is DestinationKind.JSON_LINES:
            root = folder_of(folder, project_id, biz, records)
            where = str(root)
            found = list(_of_files(root, request_id, moment(finished_at).date()))
        elif records.to is DestinationKind.QUEUE:
            return FoundRecords(to=to, where=queue_of_records(project_id, biz, records))
        else:
            return FoundRecords(to=to, records=[])
    except (RequestStoreError, ValuesRejected, TableChanged, OSError) as error:
        return FoundRecords(to=to, problem=str(error))
    return FoundRecords(
        to=to, where=where, records=found[:MOST_RECORDS], more=len(found) > MOST_RECORDS
    )


def _of_table(url: str, table: str, request_id: int) -> list[dict[str, Any]]:
    database = open_database(url)
    try:
        rows = database.find(table, KEY, request_id, MOST_RECORDS + 1)
    finally:
        database.close()
    return [_shown(row) for row in rows]


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """Convert a row for JSON: ID as text, JSON columns parsed, empty columns omitted."""
    shown = {name: value for name, value in row.items() if value is not None}
    shown["request_id"] = str(row["request_id"])
    for name in ("meta", "extra"):
        if isinstance(shown.get(name), str):
            with suppress(ValueError):
                shown[name] = json.loads(shown[name])
    shown.pop("meta", None)
    return shown


def _of_files(folder: Path, request_id: int, day: date) -> Iterator[dict[str, Any]]:
    """Return the lines of the day on which the request ended and of its neighbours, as clocks
    differ.
    """
    head = re.compile(rb'^\{"request_id":"%d",.*$' % request_id, re.MULTILINE)
    days = (day, day + timedelta(days=1), day - timedelta(days=1))
    seen: set[int] = set()
    left = MOST_BYTES
    for path in (path for each in days for path in sorted(folder.glob(f"{each}.*.jsonl"))):
        size = path.stat().st_size
        left -= size
        if left < 0 or not size:
            continue
        for record in _matching(path, head):
            if record["position"] not in seen and len(seen) <= MOST_RECORDS:
                seen.add(record["position"])
                record.pop("meta", None)
                yield record


def _matching(path: Path, head: re.Pattern[bytes]) -> Iterator[dict[str, Any]]:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as text:
        for line in head.finditer(text):
            # Line torn by a crash.
            with suppress(msgspec.DecodeError):
                yield msgspec.json.decode(line[0])
