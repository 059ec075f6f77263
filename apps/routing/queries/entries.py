"""Snapshots of items, which routers hold while they process them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import datetime
from typing import Final

import msgspec

from apps.routing.engine.items import Item, read_kept
from apps.routing.models import RoutedItem
from apps.routing.querysets import RoutedItemQuerySet
from apps.routing.states import FINAL


class LedgerEntry(msgspec.Struct, frozen=True, gc=False):
    """Snapshot of a routed item at the time it was read.

    The fields are in the order of ``ENTRY_FIELDS``. ``gc=False``: an entry cannot be part of a
    reference cycle, and a router holds thousands of them.
    """

    id: int
    project: int
    task_uuid: uuid.UUID
    inbound: str
    outbound: str
    state: str
    generation: int
    attempts: int
    due_at: datetime | None
    received_at: datetime
    routed_count: int
    retry_times: int
    group_retry_times: int
    rules_version: int
    step_count: int
    # The item as JSON.
    text: str

    @property
    def item(self) -> Item:
        """Return the item, parsed from ``text`` at each call."""
        return read_kept(self.text)

    @property
    def is_final(self) -> bool:
        """Return whether the item had ended."""
        return self.state in FINAL


ENTRY_FIELDS: Final = (
    "id",
    "project_id",
    "task_uuid",
    "inbound",
    "outbound",
    "state",
    "generation",
    "attempts",
    "due_at",
    "received_at",
    "routed_count",
    "retry_times",
    "group_retry_times",
    "rules_version",
    "step_count",
    "item",
)


def entries(rows: RoutedItemQuerySet[RoutedItem]) -> list[LedgerEntry]:
    """Return the entries of these rows, in their order."""
    return [LedgerEntry(*row) for row in rows.values_list(*ENTRY_FIELDS)]


def find_items(*, project: int, task_uuids: Iterable[str]) -> dict[str, LedgerEntry]:
    """Return the entries of items by the task_uuid texts of their results.

    Texts that are not a UUID, or an unknown one, are left out: results come from third parties.
    """
    uuids: dict[str, uuid.UUID] = {}
    for text in task_uuids:
        try:
            uuids[text] = uuid.UUID(text)
        except (ValueError, AttributeError, TypeError):
            continue
    rows = RoutedItem.objects.filter(project=project, task_uuid__in=set(uuids.values()))
    known = {entry.task_uuid: entry for entry in entries(rows)} if uuids else {}
    return {text: known[key] for text, key in uuids.items() if key in known}


def read_entry(pk: int) -> LedgerEntry | None:
    """Return the current entry of an item, or None when it was deleted."""
    return next(iter(entries(RoutedItem.objects.filter(pk=pk))), None)
