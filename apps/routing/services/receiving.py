"""Arrivals: what an inbound has brought is written down, each message once."""

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
from apps.routing.queries import Counted, Entry, entries
from apps.routing.services.statements import Inserted, Name, insert_items
from apps.routing.services.writing import Key, file_values, item_text, locked, tally
from apps.routing.states import ItemState
from apps.runtime.services import in_short_transaction
from yardkit import failpoints


class Arrival(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An item that an inbound has brought, already converted."""

    project: int
    inbound: str
    item: Item
    # What tells this message from every other one of the inbound, such as topic/partition/offset;
    # the same again when it is delivered again. "" is none: each delivery is then a new item.
    identity: str = ""
    # None makes one.
    task_uuid: uuid.UUID | None = None
    rules_version: int = 0
    # After the step ``received``, which is written by itself.
    steps: tuple[Step, ...] = ()
    resubmit_of: uuid.UUID | None = None
    # The inbound says that it brought this before. Without an identity nobody can say as which
    # item, so it may be a second one: its story says so, and it is counted.
    redelivered: bool = False


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """What became of an arrival."""

    entry: Entry
    # False: the ledger knew it, and ``entry`` is how it stands now.
    new: bool
    # Whether it is the caller's to route: it is new, or whoever had it before has lost it by this.
    held: bool


def identity_of(project: int, inbound: str, identity: str) -> str | None:
    """The digest that a delivery is known by, a UUID without its hyphens; None for none."""
    if not identity:
        return None
    said = f"{project}\0{inbound}\0{identity}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(said, digest_size=16).hexdigest()


def receive_items(
    *, arrivals: Sequence[Arrival], now: datetime, lease_seconds: float
) -> list[Receipt]:
    """Write down what has arrived, each message once; one receipt for each, in order.

    The caller holds what is new for ``lease_seconds``; after that ``claim_due`` gives it to
    somebody. With 0 anybody may have it at once. A message that comes again while its item is
    still only received takes the item over from whoever got it first: the broker has given up on
    that one. When the item has got further, its message is of no more consequence.
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
    counted: Counter[Key] = Counter()
    left = dict(ids)
    for n, row in named.items():
        # The same message twice in one batch is new once.
        pk = left.pop((row.project_id, row.task_uuid), None)
        if pk is not None:
            entry = _made(pk, row, due_at, now)
            receipts[n] = Receipt(entry, new=True, held=True)
            counted[entry.project, entry.inbound, "", Counted.ARRIVED.value] += 1
            counted[entry.project, entry.inbound, "", entry.state] += 1
            if _is_perhaps_second(arrivals[n]):
                counted[entry.project, entry.inbound, "", Counted.REDELIVERED.value] += 1
    file_values(((receipts[n].entry, arrivals[n].item) for n in receipts), now)
    again = {n: row for n, row in named.items() if n not in receipts}
    if again:
        receipts |= _known_again(again, set(ids.values()), due_at, now)
        for row in again.values():
            counted[row.project_id, row.inbound, "", Counted.REDELIVERED.value] += 1
    tally(counted)
    failpoints.hit("routing.received_before_commit")
    return [receipts[n] for n in named]


def _is_perhaps_second(arrival: Arrival) -> bool:
    return arrival.redelivered and not arrival.identity


def _row(arrival: Arrival, name: uuid.UUID, now: datetime) -> Inserted:
    again = (step(now, StepKind.REDELIVERED),) if _is_perhaps_second(arrival) else ()
    told = (step(now, StepKind.RECEIVED), *again, *arrival.steps)
    return Inserted(
        arrival.project,
        arrival.task_uuid or name,
        identity_of(arrival.project, arrival.inbound, arrival.identity),
        arrival.inbound[:NAME_CHARACTERS],
        "",
        arrival.rules_version,
        item_text(arrival.item),
        write_steps(told),
        len(told),
        arrival.resubmit_of,
    )


def _made(pk: int, row: Inserted, due_at: datetime, now: datetime) -> Entry:
    return Entry(
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


def _known_again(
    again: dict[int, Inserted], just_made: set[int], due_at: datetime, now: datetime
) -> dict[int, Receipt]:
    """Receipts of messages whose items are there already, by their place in the batch."""
    rows = RoutedItem.objects.filter(
        Q(identity__in=[row.identity for row in again.values() if row.identity])
        | Q(task_uuid__in=[row.task_uuid for row in again.values()])
    )
    lost = rows.filter(state=ItemState.RECEIVED).exclude(pk__in=just_made)
    taken = set(locked(lost.order_by("id")).values_list("id", flat=True))
    told = write_steps([step(now, StepKind.REDELIVERED)])
    RoutedItem.objects.filter(pk__in=taken).update(
        generation=F("generation") + 1,
        attempts=F("attempts") + 1,
        due_at=due_at,
        changed_at=now,
        steps=Concat(F("steps"), Value(told)),
        step_count=F("step_count") + 1,
    )
    identities = dict(rows.values_list("id", "identity"))
    by_identity: dict[str, Entry] = {}
    by_name: dict[Name, Entry] = {}
    for entry in entries(rows):
        by_name[entry.project, entry.task_uuid] = entry
        if (identity := identities[entry.id]) is not None:
            by_identity[identity.hex] = entry
    receipts = {}
    for n, row in again.items():
        known = by_identity.get(row.identity) if row.identity else None
        entry = known or by_name[row.project_id, row.task_uuid]
        receipts[n] = Receipt(entry, new=False, held=entry.id in taken)
        # The same message twice in one batch is held once.
        taken.discard(entry.id)
    return receipts
