"""Lower ID bound for reading recent rows of tables whose time columns have no index."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from django.db.models import Max, Model

# Concurrent writers: times follow the order of IDs only roughly.
LOOKED_AT: Final = 50


def oldest_to_read(model: type[Model], field: str, *, at: datetime, page: int) -> int:
    """Return an ID below all rows whose ``field`` is ``at`` or later.

    Reads the newest ``page`` rows, and further pages while they contain such rows. ``field`` must
    be a time that is set when the row is created.
    """
    rows = model._default_manager.order_by("-pk")
    oldest = (rows.aggregate(pk=Max("pk"))["pk"] or 0) - page
    while oldest > 0:
        times = rows.filter(pk__lte=oldest).values_list(field, flat=True)[:LOOKED_AT]
        if not any(time is not None and time >= at for time in times):
            break
        oldest -= page
    return max(oldest, 0)
