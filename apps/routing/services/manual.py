"""Actions of users on items: cancel, resubmit, retry parked ones."""

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
from apps.routing.engine.items import ItemError, check_item, raw_of, read_item
from apps.routing.engine.messages import resubmittable
from apps.routing.engine.steps import StepKind, step, write_steps
from apps.routing.engine.track import Malformed
from apps.routing.engine.uuids import new_task_uuid
from apps.routing.errors import (
    InvalidItem,
    ItemChanged,
    ItemNotOpen,
    ItemNotResubmittable,
    ItemResubmitted,
)
from apps.routing.models import RoutedItem
from apps.routing.queries import LedgerEntry, active_track, read_entry
from apps.routing.querysets import RESUBMITTABLE
from apps.routing.services.arrivals import Arrival, receive_items
from apps.routing.services.ledger import lock_rows
from apps.routing.services.moves import ItemMove, move_items
from apps.routing.states import ItemState

# Retries of a cancellation that conflicts with a router's move.
_TRIES = 3
# Items per call of ``offer_parked``: one UPDATE, and work for the routers for some minutes.
MOST_OFFERED = 5000


@transaction.atomic
def cancel_item(
    *, item: RoutedItem, actor: User | None, now: datetime, note: str = ""
) -> LedgerEntry:
    """Cancel an open item and return its new entry. A result that arrives later counts as late.

    Raises:
        ItemNotOpen: the item has ended or was deleted.
        ItemChanged: routers moved the item during every attempt.
    """
    for _attempt in range(_TRIES):
        entry = read_entry(item.pk)
        if entry is None or entry.is_final:
            raise ItemNotOpen
        by = "" if actor is None else actor.get_username()
        move = ItemMove(
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
) -> LedgerEntry:
    """Submit an item that ended without success again, as ``data`` or as it arrived.

    Creates a new item with its own task_uuid, which any router may claim at once, and returns its
    entry. The old item keeps its state; the two refer to each other.

    Raises:
        ItemNotResubmittable: the item is open, has succeeded, or was deleted.
        ItemResubmitted: the item was already resubmitted.
        InvalidItem: ``data``, or the stored message, is not a valid item or fails in a converter.
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
    """Return the converted item to submit: ``data``, or the stored message if it is None.

    Raises ``InvalidItem``.
    """
    try:
        if data is None:
            data = _as_arrived(old)
        check_item(data)
        return dict(_converted(old, data))
    except (ItemError, Malformed) as error:
        raise InvalidItem(fields={"item": [str(error)]}) from error


def _replace(old: RoutedItem, new: UUID, now: datetime) -> None:
    """Store the new task_uuid in the old item. Raises ``ItemResubmitted``."""
    resubmitted = write_steps([step(now, StepKind.RESUBMITTED, "", str(new))])
    if not RoutedItem.objects.filter(pk=old.pk, replaced_by__isnull=True).update(
        replaced_by=new,
        generation=F("generation") + 1,
        changed_at=now,
        steps=Concat(F("steps"), Value(resubmitted)),
        step_count=F("step_count") + 1,
    ):
        raise ItemResubmitted


def _converted(old: RoutedItem, data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Run the converters of the inbound on an item that they never converted.

    Only dead items that failed in conversion need it; all others were converted on arrival. Raises
    ``Malformed``.
    """
    if old.state != ItemState.DEAD or any(e.kind == StepKind.CONVERTED for e in old.story):
        return data
    track = active_track(old.project_id)
    entrance = None if track is None else track.entrances.get(old.inbound)
    return data if entrance is None else entrance.convert(dict(data))


def _as_arrived(old: RoutedItem) -> Mapping[str, Any]:
    """Return the item as it arrived; a malformed message is parsed again. Raises ``ItemError``."""
    item = read_item(old.item)
    raw = raw_of(item) if old.state == ItemState.DEAD else None
    return resubmittable(item) if raw is None else read_item(raw)


@transaction.atomic
def offer_parked(
    *, project: Project, outbound: str, actor: User | None, now: datetime, note: str = ""
) -> int:
    """Make parked items of an outbound due at once; return how many.

    Takes the oldest, at most ``MOST_OFFERED``, and skips items that a router has claimed.
    """
    rows = RoutedItem.objects.parked(project.pk, outbound).filter(attempts=0, due_at__gt=now)
    chosen = list(lock_rows(rows, skip=True).values_list("pk", flat=True)[:MOST_OFFERED])
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
