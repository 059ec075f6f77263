"""Store the items that inbounds deliver, each message once."""

from __future__ import annotations

import hashlib
import uuid
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial

import msgspec
from django.db.models import F, Q, Value
from django.db.models.functions import Concat

from apps.routing.engine.items import Item
from apps.routing.engine.steps import Step, StepKind, step, write_steps
from apps.routing.engine.uuids import new_task_uuids
from apps.routing.models import NAME_CHARACTERS, RoutedItem
from apps.routing.queries import CountedEvent, LedgerEntry, entries
from apps.routing.services.ledger import (
    CounterKey,
    add_counts,
    encode_item,
    index_values,
    lock_rows,
)
from apps.routing.services.statements import ItemKey, NewItemRow, insert_items
from apps.routing.states import ItemState
from apps.runtime.services import in_short_transaction
from yardkit import failpoints


class Arrival(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An item delivered by an inbound, after its converters ran."""

    project: int
    inbound: str
    item: Item
    # Idempotency key of the message within its inbound, such as topic/partition/offset. It is the
    # same for a redelivery. "" is none: each delivery then becomes a new item.
    identity: str = ""
    # None: a new one is generated.
    task_uuid: uuid.UUID | None = None
    rules_version: int = 0
    # Further steps, after the step ``received``, which is added automatically.
    steps: tuple[Step, ...] = ()
    resubmit_of: uuid.UUID | None = None
    # The broker marked the message as redelivered. Without an identity the earlier item is unknown,
    # so this may be a duplicate: it gets a step "redelivered" and is counted as redelivered.
    redelivered: bool = False


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """Outcome of storing one arrival."""

    entry: LedgerEntry
    # False: the ledger already had it, and ``entry`` is its current state.
    new: bool
    # Whether the caller holds the lease: the item is new, or was taken over from its last holder.
    held: bool


def identity_of(project: int, inbound: str, identity: str) -> str | None:
    """Return the digest that identifies a delivery, as 32 hex digits; None for no identity."""
    if not identity:
        return None
    key = f"{project}\0{inbound}\0{identity}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(key, digest_size=16).hexdigest()


def receive_items(
    *, arrivals: Sequence[Arrival], now: datetime, lease_seconds: float
) -> list[Receipt]:
    """Store arrivals, each message once; return one receipt per arrival, in order.

    The caller holds a lease of ``lease_seconds`` on each new item; after it, any router can claim
    the item by ``claim_due``. With 0 the item is due at once. A message that is redelivered while
    its item is still in state ``received`` takes over the lease, because the broker has given up on
    the first consumer. If the item has moved on, the redelivery has no effect.
    """
    if not arrivals:
        return []
    return in_short_transaction(partial(_receive, list(arrivals), now, lease_seconds))


def _receive(arrivals: list[Arrival], now: datetime, lease_seconds: float) -> list[Receipt]:
    due_at = now + timedelta(seconds=lease_seconds)
    names = new_task_uuids(now, len(arrivals))
    named = {n: _row(arrival, names[n], now) for n, arrival in enumerate(arrivals)}
    ids = insert_items(
        list(named.values()),
        {
            "state": ItemState.RECEIVED.value,
            "generation": 1,
            "attempts": 1,
            "due_at": due_at,
            "received_at": now,
            "changed_at": now,
            "routed_count": 0,
            "retry_times": 0,
            "group_retry_times": 0,
            "reason": "",
            "detail": "",
        },
    )
    receipts: dict[int, Receipt] = {}
    counted: Counter[CounterKey] = Counter()
    left = dict(ids)
    for n, row in named.items():
        # Of a message that occurs twice in one batch, only the first is new.
        pk = left.pop((row.project_id, row.task_uuid), None)
        if pk is not None:
            entry = _new_entry(pk, row, due_at, now)
            receipts[n] = Receipt(entry, new=True, held=True)
            counted[entry.project, entry.inbound, "", CountedEvent.ARRIVED.value] += 1
            counted[entry.project, entry.inbound, "", entry.state] += 1
            if _may_be_duplicate(arrivals[n]):
                counted[entry.project, entry.inbound, "", CountedEvent.REDELIVERED.value] += 1
    index_values(((receipts[n].entry, arrivals[n].item) for n in receipts), now)
    again = {n: row for n, row in named.items() if n not in receipts}
    if again:
        receipts |= _redelivered(again, set(ids.values()), due_at, now)
        for row in again.values():
            counted[row.project_id, row.inbound, "", CountedEvent.REDELIVERED.value] += 1
    add_counts(counted)
    failpoints.hit("routing.received_before_commit")
    return [receipts[n] for n in named]


def _may_be_duplicate(arrival: Arrival) -> bool:
    return arrival.redelivered and not arrival.identity


def _row(arrival: Arrival, name: uuid.UUID, now: datetime) -> NewItemRow:
    again = (step(now, StepKind.REDELIVERED),) if _may_be_duplicate(arrival) else ()
    steps = (step(now, StepKind.RECEIVED), *again, *arrival.steps)
    return NewItemRow(
        arrival.project,
        arrival.task_uuid or name,
        identity_of(arrival.project, arrival.inbound, arrival.identity),
        arrival.inbound[:NAME_CHARACTERS],
        "",
        arrival.rules_version,
        encode_item(arrival.item),
        write_steps(steps),
        len(steps),
        arrival.resubmit_of,
    )


def _new_entry(pk: int, row: NewItemRow, due_at: datetime, now: datetime) -> LedgerEntry:
    return LedgerEntry(
        pk,
        row.project_id,
        row.task_uuid,
        row.inbound,
        "",
        ItemState.RECEIVED.value,
        1,
        1,
        due_at,
        now,
        0,
        0,
        0,
        row.rules_version,
        row.step_count,
        row.item,
    )


def _redelivered(
    again: dict[int, NewItemRow], just_made: set[int], due_at: datetime, now: datetime
) -> dict[int, Receipt]:
    """Return the outcomes of messages received before, by their index in the batch.

    ``again`` are rows whose items exist already; ``just_made`` the items that this batch created.
    """
    rows = RoutedItem.objects.filter(
        Q(identity__in=[row.identity for row in again.values() if row.identity])
        | Q(task_uuid__in=[row.task_uuid for row in again.values()])
    )
    unclaimed = rows.filter(state=ItemState.RECEIVED).exclude(pk__in=just_made)
    taken = set(lock_rows(unclaimed.order_by("id")).values_list("id", flat=True))
    redelivered = write_steps([step(now, StepKind.REDELIVERED)])
    RoutedItem.objects.filter(pk__in=taken).update(
        generation=F("generation") + 1,
        attempts=F("attempts") + 1,
        due_at=due_at,
        changed_at=now,
        steps=Concat(F("steps"), Value(redelivered)),
        step_count=F("step_count") + 1,
    )
    identities = dict(rows.values_list("id", "identity"))
    by_identity: dict[str, LedgerEntry] = {}
    by_name: dict[ItemKey, LedgerEntry] = {}
    for entry in entries(rows):
        by_name[entry.project, entry.task_uuid] = entry
        if (identity := identities[entry.id]) is not None:
            by_identity[identity.hex] = entry
    receipts = {}
    for n, row in again.items():
        known = by_identity.get(row.identity) if row.identity else None
        entry = known or by_name[row.project_id, row.task_uuid]
        receipts[n] = Receipt(entry, new=False, held=entry.id in taken)
        # Of a message that occurs twice in one batch, only the first is held.
        taken.discard(entry.id)
    return receipts
