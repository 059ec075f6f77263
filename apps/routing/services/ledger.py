"""Functions shared by all services that write the ledger: counters, value pages, row locks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec
from django.db import connection
from django.db.models import QuerySet

from apps.routing.engine.fingerprints import fingerprints
from apps.routing.queries import LedgerEntry
from apps.routing.services.statements import (
    CounterChangeRow,
    ValuePageRow,
    insert_counter_changes,
    insert_page,
)

Rows = TypeVar("Rows", bound=QuerySet[Any, Any])
# Project id, inbound, outbound, counted state or event.
CounterKey = tuple[int, str, str, str]

_encode: Final = msgspec.json.Encoder().encode


def encode_item(item: Mapping[str, Any]) -> str:
    """Encode an item as JSON that every supported database accepts.

    Raises:
        ValueError: the item holds NaN or infinity.
    """
    try:
        written = _encode(item)
    except UnicodeEncodeError:
        # A lone surrogate: JSON can escape it, UTF-8 cannot encode it.
        return json.dumps(item, allow_nan=False, separators=(",", ":"))
    if b"null" in written:
        # msgspec writes NaN and infinity as null; the standard encoder rejects them.
        return json.dumps(item, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return written.decode()


def add_counts(counted: Mapping[CounterKey, int]) -> None:
    """Insert counter changes; zero changes are skipped."""
    rows = [CounterChangeRow(*key, amount) for key, amount in sorted(counted.items()) if amount]
    if rows:
        insert_counter_changes(rows)


def index_values(changed: Iterable[tuple[LedgerEntry, Mapping[str, Any]]], now: datetime) -> None:
    """Insert the value fingerprints by which a search finds these items.

    Call it in the transaction that writes the items.
    """
    by_project: dict[int, list[tuple[int, Mapping[str, Any]]]] = {}
    for entry, item in changed:
        by_project.setdefault(entry.project, []).append((entry.id, item))
    for project, rows in by_project.items():
        ids = b"".join([pk.to_bytes(8, "little") for pk, _ in rows])
        codes = fingerprints([item for _, item in rows])
        insert_page(ValuePageRow(project, now, ids, len(rows), codes))


def lock_rows(rows: Rows, *, skip: bool = False) -> Rows:
    """Lock the rows until the end of the transaction, on databases with concurrent writers.

    ``skip`` leaves out rows that another transaction has locked. SQLite needs no lock: it has one
    writer at a time.
    """
    if connection.features.has_select_for_update_skip_locked:
        return rows.select_for_update(skip_locked=skip)
    return rows
