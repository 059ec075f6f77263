"""Reads of counters and of series."""

from apps.queuestats.queries.totals import (
    ATTEMPTS,
    CENTER_SUMMED,
    OTHERS,
    REQUESTS,
    SUMMED,
    CenterBooks,
    RunBooks,
    books_of,
    center_books_of,
)
from apps.queuestats.queries.jobs import JobBooks, job_books
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

__all__ = [
    "ATTEMPTS",
    "CENTER_SUMMED",
    "OTHERS",
    "REQUESTS",
    "SUMMED",
    "CenterBooks",
    "FoundRates",
    "JobBooks",
    "Point",
    "Points",
    "RunBooks",
    "SeriesKey",
    "books_of",
    "center_books_of",
    "job_books",
    "points",
    "points_of",
    "rate",
    "rates",
    "rates_and_minutes",
    "series_of",
    "sums_between",
]
