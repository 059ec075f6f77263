"""What a person does with an item: cancel it, or submit it again, edited or not."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import F, Value
from django.db.models.functions import Concat

from apps.access.models import User
from apps.access.services import record
from apps.routing.engine.items import NoItem, check_item, read_item
from apps.routing.engine.steps import StepKind, step, write_steps
from apps.routing.engine.uuids import new_task_uuid
from apps.routing.errors import (
    ItemChanged,
    ItemNotOpen,
    ItemNotResubmittable,
    ItemRefused,
    ItemResubmitted,
)
from apps.routing.models import RoutedItem
from apps.routing.queries import Entry, read_entry
from apps.routing.querysets import RESUBMITTABLE
from apps.routing.services.moving import Move, move_items
from apps.routing.services.receiving import Arrival, receive_items
from apps.routing.states import ItemState

# A router may move the item while a person asks; so often it is looked at again.
_TRIES = 3


@transaction.atomic
def cancel_item(*, item: RoutedItem, actor: User | None, now: datetime, note: str = "") -> Entry:
    """End an open item; a result that still comes for it is a late one.

    Raises:
        ItemNotOpen: it has ended, or is no longer kept.
        ItemChanged: routers move it faster than it can be caught.
    """
    for _attempt in range(_TRIES):
        entry = read_entry(item.pk)
        if entry is None or entry.is_final:
            raise ItemNotOpen
        by = "" if actor is None else actor.get_username()
        move = Move(
            entry=entry,
            to=ItemState.CANCELLED,
            steps=(step(now, StepKind.CANCELLED, entry.outbound, by),),
            reason="cancelled",
            detail=note,
        )
        moved = move_items(moves=[move], now=now).entries.get(entry.id)
        if moved is not None:
            record(
                actor=actor,
                action="routing.cancel_item",
                obj=item,
                project=entry.project,
                before={"state": entry.state},
                after={"state": moved.state},
                note=note,
            )
            return moved
    raise ItemChanged


@transaction.atomic
def resubmit_item(
    *,
    item: RoutedItem,
    data: Mapping[str, Any] | None = None,
    actor: User | None,
    now: datetime,
    note: str = "",
) -> Entry:
    """Submit an item again that ended without success, as ``data`` or as it was.

    A new item with a name of its own stands for the old one, which keeps its state: both name
    each other. Any router may take the new one at once.

    Raises:
        ItemNotResubmittable: it is open, has succeeded, or is no longer kept.
        ItemResubmitted: it was submitted again before.
        ItemRefused: ``data`` is no item.
    """
    old = RoutedItem.objects.filter(pk=item.pk).first()
    if old is None or old.state not in RESUBMITTABLE:
        raise ItemNotResubmittable
    edited = data is not None
    if data is None:
        data = read_item(old.item)
    try:
        check_item(data)
    except NoItem as error:
        raise ItemRefused(fields={"item": [str(error)]}) from error
    new = new_task_uuid(now)
    told = write_steps([step(now, StepKind.RESUBMITTED, "", str(new))])
    if not RoutedItem.objects.filter(pk=old.pk, replaced_by__isnull=True).update(
        replaced_by=new,
        generation=F("generation") + 1,
        changed_at=now,
        steps=Concat(F("steps"), Value(told)),
        step_count=F("step_count") + 1,
    ):
        raise ItemResubmitted
    by = "" if actor is None else actor.get_username()
    arrival = Arrival(
        project=old.project_id,
        inbound=old.inbound,
        item=dict(data),
        task_uuid=new,
        resubmit_of=old.task_uuid,
        steps=(step(now, StepKind.RESUBMITTED, "", f"{old.task_uuid} {by}".strip()),),
    )
    (receipt,) = receive_items(arrivals=[arrival], now=now, lease_seconds=0)
    record(
        actor=actor,
        action="routing.resubmit_item",
        obj=old,
        project=old.project_id,
        before={"item": old.item[:2000]} if edited else None,
        after={"task_uuid": str(new)}
        | ({"item": str(receipt.entry.text)[:2000]} if edited else {}),
        note=note,
    )
    return receipt.entry
