"""Connections to the database in tests with threads of their own."""

from __future__ import annotations

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper


def close_connections() -> None:
    """Close every connection of this thread, at its end.

    Also to a database in memory, which Django itself leaves open: the thread that made the
    database still holds it, and Python 3.13 warns of a connection that is collected unclosed.
    """
    for connection in connections.all(initialized_only=True):
        BaseDatabaseWrapper.close(connection)
