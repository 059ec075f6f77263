"""Texts of exceptions for logs, answers and pages."""

from __future__ import annotations


def first_line(error: BaseException) -> str:
    """Return the first line of the error's text, or its class name."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
