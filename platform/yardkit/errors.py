"""What an exception says, in one line: for logs, answers and pages."""

from __future__ import annotations


def first_line(error: BaseException) -> str:
    """The first line of its text; the name of its class where it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
