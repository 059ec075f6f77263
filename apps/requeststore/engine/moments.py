"""Times as stores keep them: Unix milliseconds."""

from __future__ import annotations

from datetime import datetime

from apps.requeststore.engine.limits import MAX_TS


def ts_of(moment: datetime | None, usual: int) -> int:
    """Return a time as Unix ms, limited to the range of the stores; ``usual`` for None."""
    return usual if moment is None else min(MAX_TS, max(0, int(moment.timestamp() * 1000)))
