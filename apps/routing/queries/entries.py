"""Entries: items as routers hold them while they work on them."""

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


class Entry(msgspec.Struct, frozen=True, gc=False):
    """An item as it stood when it was read: what a router holds while it works on it.

    The order of the fields is that of ``ENTRY_FIELDS``. (It can be in no circle, so the collector
    need not look at the thousands of them that are held.)
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
    # JSON.
    text: str

    @property
    def item(self) -> Item:
        """The item itself, read anew each time."""
        return read_kept(self.text)

    @property
    def is_final(self) -> bool:
        """Whether it had ended."""
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


def entries(rows: RoutedItemQuerySet[RoutedItem]) -> list[Entry]:
    """These rows as entries, in their order."""
    return [Entry(*row) for row in rows.values_list(*ENTRY_FIELDS)]


def find_items(*, project: int, task_uuids: Iterable[str]) -> dict[str, Entry]:
    """The items that results speak of, by the text that each result carries.

    What is no UUID, or one that nobody knows, is left out: third parties write anything.
    """
    asked: dict[str, uuid.UUID] = {}
    for text in task_uuids:
        try:
            asked[text] = uuid.UUID(text)
        except (ValueError, AttributeError, TypeError):
            continue
    rows = RoutedItem.objects.filter(project=project, task_uuid__in=set(asked.values()))
    found = {entry.task_uuid: entry for entry in entries(rows)} if asked else {}
    return {text: found[known] for text, known in asked.items() if known in found}


def read_entry(pk: int) -> Entry | None:
    """The entry with this id as it stands now, or None when it has been forgotten."""
    return next(iter(entries(RoutedItem.objects.filter(pk=pk))), None)
