"""Every read of this app that is more than a filter."""

from apps.routing.queries.books import (
    Audit,
    Books,
    Counted,
    OutboundCounts,
    audit_books,
    books,
    outbound_counts,
)
from apps.routing.queries.entries import ENTRY_FIELDS, Entry, entries, find_items, read_entry
from apps.routing.queries.knowing import find_known, known_of
from apps.routing.queries.lists import Found, find_by_value, list_items
from apps.routing.queries.replaying import replay
from apps.routing.queries.reports import (
    InboundStanding,
    OutboundStanding,
    ProjectTrouble,
    Standing,
    projects_in_trouble,
    standing,
)
from apps.routing.queries.servers import Listener, ServerStanding, server_standing
from apps.routing.queries.tracks import active_track, track_of

__all__ = [
    "ENTRY_FIELDS",
    "Audit",
    "Books",
    "Counted",
    "Entry",
    "Found",
    "InboundStanding",
    "Listener",
    "OutboundCounts",
    "OutboundStanding",
    "ProjectTrouble",
    "ServerStanding",
    "Standing",
    "active_track",
    "audit_books",
    "books",
    "entries",
    "find_by_value",
    "find_items",
    "find_known",
    "known_of",
    "list_items",
    "outbound_counts",
    "projects_in_trouble",
    "read_entry",
    "replay",
    "server_standing",
    "standing",
    "track_of",
]
