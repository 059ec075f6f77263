"""Every write of this app, and what a process counts."""

from apps.queuestats.services.counters import (
    LAST_REPORT_SECONDS,
    Report,
    close_books,
    store_counters,
)
from apps.queuestats.services.rejections import Refused
from apps.queuestats.services.samples import (
    note_listening,
    prune_series,
    record_gauges,
    store_samples,
)
from apps.queuestats.services.gauge_samples import Sampled, sample_gauges

__all__ = [
    "LAST_REPORT_SECONDS",
    "Refused",
    "Report",
    "Sampled",
    "close_books",
    "note_listening",
    "prune_series",
    "record_gauges",
    "sample_gauges",
    "store_counters",
    "store_samples",
]
