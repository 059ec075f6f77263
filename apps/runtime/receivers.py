"""Treat a PostgreSQL server that is read-only for now as unreachable.

A standby before its promotion, or a server with a full disk, refuses writes with what the driver
calls an internal error; that would become an HTTP 500 or a dead letter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from django.db import InternalError, OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper

# "cannot execute INSERT in a read-only transaction"
_READ_ONLY: Final = "25006"


def raise_if_read_only(
    execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]
) -> Any:
    """Execute a statement; raise ``OperationalError`` if the server is read-only."""
    try:
        return execute(sql, params, many, context)
    except InternalError as error:
        if getattr(error.__cause__, "sqlstate", None) != _READ_ONLY:
            raise
        raise OperationalError(*error.args) from error


def watch_writes(connection: BaseDatabaseWrapper, **_signal: Any) -> None:
    """Receiver of ``connection_created``: install the wrapper on PostgreSQL connections."""
    if connection.vendor == "postgresql" and raise_if_read_only not in connection.execute_wrappers:
        # First in the list: code that wraps statements temporarily removes the last wrapper.
        connection.execute_wrappers.insert(0, raise_if_read_only)
