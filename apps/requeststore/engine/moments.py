"""Times as the stores have them: milliseconds since 1970."""

from __future__ import annotations

from datetime import datetime

from apps.requeststore.engine.limits import MAX_TS


def ts_of(moment: datetime | None, usual: int) -> int:
    """Of a time that may be left out; ``usual`` without one. Never beyond what a store can hold."""
    return usual if moment is None else min(MAX_TS, max(0, int(moment.timestamp() * 1000)))
