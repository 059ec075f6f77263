"""Every write of this app.

Batches are one short transaction each: what a call returns has happened, and what a killed process
got no answer to has happened wholly or not at all. Whoever holds an ``Entry`` moves its item by it;
a move by an entry that has become old does nothing and is told, so that two routers never both
believe that they have an item.
"""

from apps.routing.services.claiming import claim_due, claim_parked, spare_items
from apps.routing.services.listening import report_servers
from apps.routing.services.manual import cancel_item, offer_parked, resubmit_item
from apps.routing.services.moving import Move, Moved, Note, move_items, note_items
from apps.routing.services.receiving import Arrival, Receipt, receive_items
from apps.routing.services.reporting import forget_old_reports, forget_reports, report_lines
from apps.routing.services.submitting import Fate, Submitted, submit_items
from apps.routing.services.sweeping import (
    Swept,
    fold_tallies,
    forget_items,
    merge_pages,
    sweep_ledger,
)
from apps.routing.services.taking import Brought, TakenIn, take_in

__all__ = [
    "Arrival",
    "Brought",
    "Fate",
    "Move",
    "Moved",
    "Note",
    "Receipt",
    "Submitted",
    "Swept",
    "TakenIn",
    "cancel_item",
    "claim_due",
    "claim_parked",
    "fold_tallies",
    "forget_items",
    "forget_old_reports",
    "forget_reports",
    "merge_pages",
    "move_items",
    "note_items",
    "offer_parked",
    "receive_items",
    "report_lines",
    "report_servers",
    "resubmit_item",
    "spare_items",
    "submit_items",
    "sweep_ledger",
    "take_in",
]
