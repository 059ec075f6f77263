"""A batch of an inbound: what it brought is written down in one transaction, whatever it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial

import msgspec

from apps.routing.models import NAME_CHARACTERS
from apps.routing.queries import Counted
from apps.routing.services.moving import Move, Moved, Note, move_items, note_items
from apps.routing.services.receiving import Arrival, Receipt, receive_items
from apps.routing.services.writing import Key, tally
from apps.runtime.services import in_short_transaction


class Brought(msgspec.Struct, frozen=True, kw_only=True):
    """What one inbound of one project has brought."""

    project: int
    inbound: str
    arrivals: Sequence[Arrival] = ()
    # What is no item. It is received too, and ends in the same transaction by ``ends_as``.
    poison: Sequence[Arrival] = ()
    # Results of known items, as the moves that they make.
    moves: Sequence[Move] = ()
    # Results that change nothing.
    notes: Sequence[Note] = ()
    # How many results there were, and how many things that no selector wants.
    results: int = 0
    filtered: int = 0


class TakenIn(msgspec.Struct, frozen=True):
    """What became of it."""

    # For each arrival, in order.
    receipts: list[Receipt]
    moved: Moved
    # How much poison was new.
    poison: int = 0


# Of the receipts of all poison, in order, the moves by which what is held of it ends; whatever else
# must be safe before that, it makes safe.
EndsAs = Callable[[list[Receipt]], Sequence[Move]]


def take_in(*, brought: Brought, ends_as: EndsAs, now: datetime, lease_seconds: float) -> TakenIn:
    """Write all of it down, or nothing. ``receive_items`` says who holds what then.

    Raises:
        ItemMoveRefused: a move that no item can make.
    """
    if _is_plain(brought):
        receipts = receive_items(arrivals=brought.arrivals, now=now, lease_seconds=lease_seconds)
        return TakenIn(receipts, Moved({}, []))
    return in_short_transaction(partial(_take_in, brought, ends_as, now, lease_seconds))


def _is_plain(brought: Brought) -> bool:
    return not (
        brought.poison or brought.moves or brought.notes or brought.results or brought.filtered
    )


def _take_in(brought: Brought, ends_as: EndsAs, now: datetime, lease_seconds: float) -> TakenIn:
    receipts = receive_items(arrivals=brought.arrivals, now=now, lease_seconds=lease_seconds)
    poisoned = receive_items(arrivals=brought.poison, now=now, lease_seconds=lease_seconds)
    moved = move_items(moves=brought.moves, now=now)
    note_items(notes=brought.notes)
    if poisoned:
        move_items(moves=ends_as(poisoned), now=now)
    inbound = brought.inbound[:NAME_CHARACTERS]
    counted: Counter[Key] = Counter()
    counted[brought.project, inbound, "", Counted.FILTERED.value] = brought.filtered
    counted[brought.project, inbound, "", Counted.RESULT.value] = brought.results
    tally(counted)
    return TakenIn(receipts, moved, sum(receipt.new for receipt in poisoned))
