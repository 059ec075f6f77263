"""Every write of this app.

Batches are one short transaction each: what a call returns has happened, and what a killed process
got no answer to has happened wholly or not at all. Whoever holds an ``Entry`` moves its item by it;
a move by an entry that has become old does nothing and is told, so that two routers never both
believe that they have an item.
"""

from apps.routing.services.claiming import claim_due, claim_parked
from apps.routing.services.moving import Move, Moved, Note, move_items, note_items
from apps.routing.services.persons import cancel_item, resubmit_item
from apps.routing.services.receiving import Arrival, Receipt, receive_items
from apps.routing.services.sweeping import (
    Swept,
    fold_tallies,
    forget_items,
    merge_pages,
    sweep_ledger,
)

__all__ = [
    "Arrival",
    "Move",
    "Moved",
    "Note",
    "Receipt",
    "Swept",
    "cancel_item",
    "claim_due",
    "claim_parked",
    "fold_tallies",
    "forget_items",
    "merge_pages",
    "move_items",
    "note_items",
    "receive_items",
    "resubmit_item",
    "sweep_ledger",
]
