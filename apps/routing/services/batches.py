"""Store everything that one inbound delivered in a batch, in one transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial

import msgspec

from apps.routing.models import NAME_CHARACTERS
from apps.routing.queries import CountedEvent
from apps.routing.services.arrivals import Arrival, Receipt, receive_items
from apps.routing.services.ledger import CounterKey, add_counts
from apps.routing.services.moves import ItemMove, ItemNote, MovedItems, move_items, note_items
from apps.runtime.services import in_short_transaction


class InboundBatch(msgspec.Struct, frozen=True, kw_only=True):
    """New items, malformed messages and results that one inbound of one project delivered."""

    project: int
    inbound: str
    arrivals: Sequence[Arrival] = ()
    # Messages that are not valid items. Each becomes an item that ends in the same transaction.
    malformed: Sequence[Arrival] = ()
    # Moves caused by results of known items.
    moves: Sequence[ItemMove] = ()
    # Steps for results that change no state.
    notes: Sequence[ItemNote] = ()
    # Number of results, and of messages that no selector accepted.
    results: int = 0
    filtered: int = 0


class BatchResult(msgspec.Struct, frozen=True):
    """Outcome of storing an ``InboundBatch``."""

    # One for each arrival, in order.
    receipts: list[Receipt]
    moved: MovedItems
    # Number of malformed messages that were not stored before.
    malformed: int = 0


# Called with the receipts of all malformed messages, in order. Writes their lines of the failure
# file, then returns the moves that end the items which the caller holds.
EndMalformed = Callable[[list[Receipt]], Sequence[ItemMove]]


def store_batch(
    *, batch: InboundBatch, end_malformed: EndMalformed, now: datetime, lease_seconds: float
) -> BatchResult:
    """Store the whole batch or nothing; see ``receive_items`` for who holds which item afterwards.

    Raises:
        InvalidItemMove: a move is not allowed from the item's state.
    """
    if _has_only_arrivals(batch):
        receipts = receive_items(arrivals=batch.arrivals, now=now, lease_seconds=lease_seconds)
        return BatchResult(receipts, MovedItems({}, []))
    return in_short_transaction(partial(_store_batch, batch, end_malformed, now, lease_seconds))


def _has_only_arrivals(batch: InboundBatch) -> bool:
    return not (batch.malformed or batch.moves or batch.notes or batch.results or batch.filtered)


def _store_batch(
    batch: InboundBatch, end_malformed: EndMalformed, now: datetime, lease_seconds: float
) -> BatchResult:
    receipts = receive_items(arrivals=batch.arrivals, now=now, lease_seconds=lease_seconds)
    malformed = receive_items(arrivals=batch.malformed, now=now, lease_seconds=lease_seconds)
    moved = move_items(moves=batch.moves, now=now)
    note_items(notes=batch.notes)
    if malformed:
        move_items(moves=end_malformed(malformed), now=now)
    inbound = batch.inbound[:NAME_CHARACTERS]
    counted: Counter[CounterKey] = Counter()
    counted[batch.project, inbound, "", CountedEvent.FILTERED.value] = batch.filtered
    counted[batch.project, inbound, "", CountedEvent.RESULT.value] = batch.results
    add_counts(counted)
    return BatchResult(receipts, moved, sum(receipt.new for receipt in malformed))
