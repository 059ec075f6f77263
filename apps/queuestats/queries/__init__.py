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

__all__ = [
    "ATTEMPTS",
    "CENTER_SUMMED",
    "OTHERS",
    "REQUESTS",
    "SUMMED",
    "CenterBooks",
    "RunBooks",
    "books_of",
    "center_books_of",
]
