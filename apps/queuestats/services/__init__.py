"""Every write of this app, and what a process counts."""

from apps.queuestats.services.counters import (
    LAST_REPORT_SECONDS,
    Refused,
    Report,
    close_books,
    store_counters,
)

__all__ = [
    "LAST_REPORT_SECONDS",
    "Refused",
    "Report",
    "close_books",
    "store_counters",
]
