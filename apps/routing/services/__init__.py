"""Write operations of the router's ledger.

Each batch is one short transaction: either all of it is committed or nothing is. A caller moves an
item with the ``LedgerEntry`` that it read. A move with an outdated entry changes nothing and is
returned as lost, so two routers never both own an item.
"""

from apps.routing.services.arrivals import Arrival, Receipt, receive_items
from apps.routing.services.batches import BatchResult, InboundBatch, store_batch
from apps.routing.services.claims import claim_due, claim_parked, spare_items
from apps.routing.services.maintenance import (
    MaintenanceResult,
    fold_tallies,
    forget_items,
    merge_pages,
    sweep_ledger,
)
from apps.routing.services.manual import cancel_item, offer_parked, resubmit_item
from apps.routing.services.moves import ItemMove, ItemNote, MovedItems, move_items, note_items
from apps.routing.services.router_reports import forget_old_reports, forget_reports, report_lines
from apps.routing.services.server_reports import report_servers
from apps.routing.services.submissions import SubmissionResult, SubmissionStatus, submit_items

__all__ = [
    "Arrival",
    "BatchResult",
    "InboundBatch",
    "ItemMove",
    "ItemNote",
    "MaintenanceResult",
    "MovedItems",
    "Receipt",
    "SubmissionResult",
    "SubmissionStatus",
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
    "store_batch",
    "submit_items",
    "sweep_ledger",
]
