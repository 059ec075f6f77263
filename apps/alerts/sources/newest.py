"""How far back the rows of a table must be read, where times have no index but ids do."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from django.db.models import Max, Model

# Rows are written by many at once: their times are in the order of their ids only roughly.
LOOKED_AT: Final = 50


def oldest_to_read(model: type[Model], field: str, *, at: datetime, page: int) -> int:
    """The id above which all rows are whose ``field`` is ``at`` or later.

    The newest ``page`` rows, and as many pages more as there are with such rows: after a while in
    which nobody looked everything is read. ``field`` is a time that is written once, with the row.
    """
    rows = model._default_manager.order_by("-pk")
    oldest = (rows.aggregate(pk=Max("pk"))["pk"] or 0) - page
    while oldest > 0:
        times = rows.filter(pk__lte=oldest).values_list(field, flat=True)[:LOOKED_AT]
        if not any(time is not None and time >= at for time in times):
            break
        oldest -= page
    return max(oldest, 0)
