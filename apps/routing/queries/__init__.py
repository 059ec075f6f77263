"""Read operations of the routing app beyond plain filters."""

from apps.routing.queries.accounting import (
    CountedEvent,
    ItemAccounting,
    OutboundCounts,
    Reconciliation,
    item_accounting,
    outbound_counts,
    reconcile_items,
)
from apps.routing.queries.entries import ENTRY_FIELDS, LedgerEntry, entries, find_items, read_entry
from apps.routing.queries.known_items import find_known_item, known_item
from apps.routing.queries.lists import SearchResult, find_by_value, list_items
from apps.routing.queries.replays import replay
from apps.routing.queries.reports import (
    InboundStatus,
    OutboundStatus,
    ProjectProblems,
    RoutingStatus,
    projects_with_problems,
    routing_status,
)
from apps.routing.queries.servers import Listener, ServerStatus, server_status
from apps.routing.queries.tracks import active_track, track_of

__all__ = [
    "ENTRY_FIELDS",
    "CountedEvent",
    "InboundStatus",
    "ItemAccounting",
    "LedgerEntry",
    "Listener",
    "OutboundCounts",
    "OutboundStatus",
    "ProjectProblems",
    "Reconciliation",
    "RoutingStatus",
    "SearchResult",
    "ServerStatus",
    "active_track",
    "entries",
    "find_by_value",
    "find_items",
    "find_known_item",
    "item_accounting",
    "known_item",
    "list_items",
    "outbound_counts",
    "projects_with_problems",
    "read_entry",
    "reconcile_items",
    "replay",
    "routing_status",
    "server_status",
    "track_of",
]
