"""Write operations of queue statistics, and the counting API for other apps."""

from apps.queuestats.services.counters import (
    LAST_REPORT_SECONDS,
    Report,
    finalize_counters,
    store_counters,
)
from apps.queuestats.services.gauge_samples import SampleCounts, sample_gauges
from apps.queuestats.services.rejections import RejectedReport
from apps.queuestats.services.samples import (
    prune_series,
    record_gauges,
    record_observed_seconds,
    store_samples,
)

__all__ = [
    "LAST_REPORT_SECONDS",
    "RejectedReport",
    "Report",
    "SampleCounts",
    "finalize_counters",
    "prune_series",
    "record_gauges",
    "record_observed_seconds",
    "sample_gauges",
    "store_counters",
    "store_samples",
]
