"""Database reads of the center's threads."""

from __future__ import annotations

from django.db import close_old_connections, connection
from django.db.utils import Error

from apps.agents.center.runs import AllocationsUnavailable, OpenAllocation
from apps.agents.queries import open_allocation
from yardkit.errors import first_line


def load(run: int) -> OpenAllocation | None:
    """Return the open allocation of a run, for the dispatcher. Raises
    ``AllocationsUnavailable``.
    """
    try:
        close_old_connections()
        return open_allocation(run)
    except Error as error:
        connection.close()
        raise AllocationsUnavailable(first_line(error)) from error
