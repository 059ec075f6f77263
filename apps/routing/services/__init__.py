"""Write operations of the router's ledger.

Each batch is one short transaction: either all of it is committed or nothing is. A caller moves an
item with the ``LedgerEntry`` that it read. A move with an outdated entry changes nothing and is
returned as lost, so two routers never both own an item.
"""

from apps.routing.services.arrivals import Arrival, Receipt, receive_items
from apps.routing.services.batches import BatchResult, InboundBatch, store_batch
from apps.routing.services.claims import claim_due, claim_parked, reset_attempts
from apps.routing.services.maintenance import (
    MaintenanceResult,
    delete_old_items,
    fold_counter_changes,
    merge_pages,
    sweep_ledger,
)
from apps.routing.services.manual import cancel_item, offer_parked, resubmit_item
from apps.routing.services.moves import (
    ItemMove,
    ItemNote,
    MovedItems,
    failure_record,
    move_items,
    note_items,
)
from apps.routing.services.router_reports import delete_old_reports, delete_reports, report_router
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
    "delete_old_items",
    "delete_old_reports",
    "delete_reports",
    "failure_record",
    "fold_counter_changes",
    "merge_pages",
    "move_items",
    "note_items",
    "offer_parked",
    "receive_items",
    "report_router",
    "report_servers",
    "reset_attempts",
    "resubmit_item",
    "store_batch",
    "submit_items",
    "sweep_ledger",
]
