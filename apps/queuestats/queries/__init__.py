"""Read access to counters and time series."""

from apps.queuestats.queries.jobs import JobTotals, job_totals
from apps.queuestats.queries.series import (
    FoundRates,
    Point,
    Points,
    SeriesKey,
    points,
    points_of,
    rate,
    rates,
    rates_and_minutes,
    series_of,
    sums_between,
)
from apps.queuestats.queries.totals import (
    ATTEMPTS,
    CENTER_SUMMED,
    OTHERS,
    REQUESTS,
    SUMMED,
    CenterTotals,
    RunTotals,
    center_totals,
    page_totals,
    run_totals,
)

__all__ = [
    "ATTEMPTS",
    "CENTER_SUMMED",
    "OTHERS",
    "REQUESTS",
    "SUMMED",
    "CenterTotals",
    "FoundRates",
    "JobTotals",
    "Point",
    "Points",
    "RunTotals",
    "SeriesKey",
    "center_totals",
    "job_totals",
    "page_totals",
    "points",
    "points_of",
    "rate",
    "rates",
    "rates_and_minutes",
    "run_totals",
    "series_of",
    "sums_between",
]
