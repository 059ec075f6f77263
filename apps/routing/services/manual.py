"""What a person does with an item: cancel it, or submit it again, edited or not."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F, Value
from django.db.models.functions import Concat

from apps.access.models import User
from apps.access.services import record
from apps.projects.models import Project
from apps.routing.engine.items import NoItem, check_item, raw_of, read_item
from apps.routing.engine.messages import anew
from apps.routing.engine.steps import StepKind, step, write_steps
from apps.routing.engine.track import Poison
from apps.routing.engine.uuids import new_task_uuid
from apps.routing.errors import (
    ItemChanged,
    ItemNotOpen,
    ItemNotResubmittable,
    ItemRefused,
    ItemResubmitted,
)
from apps.routing.models import RoutedItem
from apps.routing.queries import Entry, active_track, read_entry
from apps.routing.querysets import RESUBMITTABLE
from apps.routing.services.moving import Move, move_items
from apps.routing.services.receiving import Arrival, receive_items
from apps.routing.services.writing import locked
from apps.routing.states import ItemState

# A router may move the item while a person asks; so often it is looked at again.
_TRIES = 3
# One statement changes no more rows; routers are busy with so many for a while.
MOST_OFFERED = 5000


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
    """Submit an item again that ended without success, as ``data`` or as it came in.

    A new item with a name of its own stands for the old one, which keeps its state: both name
    each other. Any router may take the new one at once.

    Raises:
        ItemNotResubmittable: it is open, has succeeded, or is no longer kept.
        ItemResubmitted: it was submitted again before.
        ItemRefused: ``data`` is no item, or nothing was that came in, or a converter refuses it.
    """
    old = RoutedItem.objects.filter(pk=item.pk).first()
    if old is None or old.state not in RESUBMITTABLE:
        raise ItemNotResubmittable
    item_data = _checked(old, data)
    new = new_task_uuid(now)
    _replace(old, new, now)
    by = "" if actor is None else actor.get_username()
    arrival = Arrival(
        project=old.project_id,
        inbound=old.inbound,
        item=item_data,
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
        before=None if data is None else {"item": old.item[:2000]},
        after={"task_uuid": str(new)}
        | ({} if data is None else {"item": str(receipt.entry.text)[:2000]}),
        note=note,
    )
    return receipt.entry


def _checked(old: RoutedItem, data: Mapping[str, Any] | None) -> dict[str, Any]:
    """The item that stands for the old one: ``data``, or what came in. Raises ``ItemRefused``."""
    try:
        if data is None:
            data = _as_it_was(old)
        check_item(data)
        return dict(_converted(old, data))
    except (NoItem, Poison) as error:
        raise ItemRefused(fields={"item": [str(error)]}) from error


def _replace(old: RoutedItem, new: UUID, now: datetime) -> None:
    """Have the old item name the new one. Raises ``ItemResubmitted``."""
    told = write_steps([step(now, StepKind.RESUBMITTED, "", str(new))])
    if not RoutedItem.objects.filter(pk=old.pk, replaced_by__isnull=True).update(
        replaced_by=new,
        generation=F("generation") + 1,
        changed_at=now,
        steps=Concat(F("steps"), Value(told)),
        step_count=F("step_count") + 1,
    ):
        raise ItemResubmitted


def _converted(old: RoutedItem, data: Mapping[str, Any]) -> Mapping[str, Any]:
    """What no converter could work on before goes through those of its inbound now.

    All other items have been through them, whatever they are edited to. Raises ``Poison``.
    """
    if old.state != ItemState.DEAD or any(e.kind == StepKind.CONVERTED for e in old.story):
        return data
    track = active_track(old.project_id)
    entrance = None if track is None else track.entrances.get(old.inbound)
    return data if entrance is None else entrance.convert(dict(data))


def _as_it_was(old: RoutedItem) -> Mapping[str, Any]:
    """Its item; of poison that was none the text is read again. Raises ``NoItem``."""
    item = read_item(old.item)
    raw = raw_of(item) if old.state == ItemState.DEAD else None
    return anew(item) if raw is None else read_item(raw)


@transaction.atomic
def offer_parked(
    *, project: Project, outbound: str, actor: User | None, now: datetime, note: str = ""
) -> int:
    """Let routers offer items that are parked for this outbound again at once; how many.

    Those that wait longest, ``MOST_OFFERED`` at most; what a router is busy with is left to it.
    """
    rows = RoutedItem.objects.parked(project.pk, outbound).filter(attempts=0, due_at__gt=now)
    chosen = list(locked(rows, skip=True).values_list("pk", flat=True)[:MOST_OFFERED])
    if not chosen:
        return 0
    offered = RoutedItem.objects.filter(pk__in=chosen, state=ItemState.PARKED, attempts=0).update(
        due_at=now
    )
    record(
        actor=actor,
        action="routing.offer_parked",
        obj=project,
        after={"outbound": outbound, "items": offered},
        note=note,
    )
    return offered
