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
from apps.routing.queries.lists import Found, find_by_value, list_items

__all__ = [
    "ENTRY_FIELDS",
    "Audit",
    "Books",
    "Counted",
    "Entry",
    "Found",
    "OutboundCounts",
    "audit_books",
    "books",
    "entries",
    "find_by_value",
    "find_items",
    "list_items",
    "outbound_counts",
    "read_entry",
]
