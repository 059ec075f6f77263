"""Reads of counters and of series."""

from apps.queuestats.queries.books import (
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
    gauge_means,
    minutes,
    points,
    points_of,
    rate,
    rates,
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
    "gauge_means",
    "job_books",
    "minutes",
    "points",
    "points_of",
    "rate",
    "rates",
    "series_of",
    "sums_between",
]
