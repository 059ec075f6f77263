"""Period that a page shows."""

from __future__ import annotations

from django.http import HttpRequest

from apps.queuestats.queries.job_days import PERIODS


def days_of(request: HttpRequest, usual: int) -> int:
    """Return the chosen period in days, ``usual`` if none of ``PERIODS`` is chosen."""
    text = request.GET.get("days", "")
    return int(text) if text in map(str, PERIODS) else usual
