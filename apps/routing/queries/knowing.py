"""What the engine is to know of an item of the ledger, to decide about it."""

from __future__ import annotations

from apps.routing.engine.life import Known
from apps.routing.engine.messages import Counters
from apps.routing.engine.outcomes import State
from apps.routing.queries.entries import Entry, find_items


def known_of(entry: Entry) -> Known:
    """The item as the ledger has it."""
    return Known(
        uuid=str(entry.task_uuid),
        state=State(entry.state),
        outbound=entry.outbound,
        counters=Counters(entry.routed_count, entry.retry_times, entry.group_retry_times),
        item=entry.item,
    )


def find_known(project: int, task_uuid: str) -> Known | None:
    """What the ledger knows of the item that a result speaks of; None when it knows none."""
    entry = find_items(project=project, task_uuids=[task_uuid]).get(task_uuid)
    return None if entry is None else known_of(entry)
