"""Stored items in the form that the engine's decisions need."""

from __future__ import annotations

from apps.routing.engine.life import KnownItem
from apps.routing.engine.messages import Counters
from apps.routing.engine.outcomes import TaskState
from apps.routing.queries.entries import LedgerEntry, find_items


def known_item(entry: LedgerEntry) -> KnownItem:
    """Convert a ledger entry to the engine's ``KnownItem``."""
    return KnownItem(
        uuid=str(entry.task_uuid),
        state=TaskState(entry.state),
        outbound=entry.outbound,
        counters=Counters(entry.routed_count, entry.retry_times, entry.group_retry_times),
        item=entry.item,
    )


def find_known_item(project: int, task_uuid: str) -> KnownItem | None:
    """Return the stored item with this task_uuid text, or None."""
    entry = find_items(project=project, task_uuids=[task_uuid]).get(task_uuid)
    return None if entry is None else known_item(entry)
