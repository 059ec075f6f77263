"""What a center's threads ask the database, and what they say of one that is away."""

from __future__ import annotations

from django.db import close_old_connections, connection
from django.db.utils import Error

from apps.agents.center.runs import AllocationsUnavailable, OpenAllocation
from apps.agents.queries import open_allocation
from yardkit.errors import first_line


def load(run: int) -> OpenAllocation | None:
    """The dispatcher's look into the database, for a run that another center allocated."""
    try:
        close_old_connections()
        return open_allocation(run)
    except Error as error:
        connection.close()
        raise AllocationsUnavailable(first_line(error)) from error
