"""What the ledger's writers share: short transactions, counts, pages of values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec
from django.db import connection
from django.db.models import QuerySet

from apps.routing.engine.fingerprints import fingerprints
from apps.routing.queries import Entry
from apps.routing.services.statements import Added, Page, insert_page, insert_tallies

Rows = TypeVar("Rows", bound=QuerySet[Any, Any])
# Project, inbound, outbound, what is counted.
Key = tuple[int, str, str, str]

_encode: Final = msgspec.json.Encoder().encode


def item_text(item: Mapping[str, Any]) -> str:
    """The item as JSON that any database takes. Raises ``ValueError`` for NaN and infinity."""
    try:
        written = _encode(item)
    except UnicodeEncodeError:
        # Half of a pair, which JSON may name and UTF-8 has no bytes for.
        return json.dumps(item, allow_nan=False, separators=(",", ":"))
    if b"null" in written:
        # It may stand for what is no number: the slower one knows.
        return json.dumps(item, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return written.decode()


def tally(counted: Mapping[Key, int]) -> None:
    """Write these changes of counts down, but for those that are none."""
    rows = [Added(*key, amount) for key, amount in sorted(counted.items()) if amount]
    if rows:
        insert_tallies(rows)


def file_values(changed: Iterable[tuple[Entry, Mapping[str, Any]]], now: datetime) -> None:
    """Write down, with the items themselves, what finds them by their values."""
    by_project: dict[int, list[tuple[int, Mapping[str, Any]]]] = {}
    for entry, item in changed:
        by_project.setdefault(entry.project, []).append((entry.id, item))
    for project, found in by_project.items():
        items = b"".join([pk.to_bytes(8, "little") for pk, _ in found])
        codes = fingerprints([item for _, item in found])
        insert_page(Page(project, now, items, len(found), codes))


def locked(rows: Rows, *, skip: bool = False) -> Rows:
    """Locked until the end of the transaction, where there is more than one writer at a time."""
    if connection.features.has_select_for_update_skip_locked:
        return rows.select_for_update(skip_locked=skip)
    return rows
