"""A PostgreSQL that takes no writes for now counts as one that is away.

So it is with a standby that was not promoted yet, or a server whose disk is nearly full. The driver
calls the refusal an internal error, which would be a defect of ours: an answer 500, a dead letter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from django.db import InternalError, OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper

# "cannot execute INSERT in a read-only transaction"
_READ_ONLY: Final = "25006"


def tell_read_only(
    execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]
) -> Any:
    """Runs a statement. Raises ``OperationalError`` where the server only reads."""
    try:
        return execute(sql, params, many, context)
    except InternalError as error:
        if getattr(error.__cause__, "sqlstate", None) != _READ_ONLY:
            raise
        raise OperationalError(*error.args) from error


def watch_writes(connection: BaseDatabaseWrapper, **_signal: Any) -> None:
    """Of every connection to PostgreSQL; receives ``connection_created``."""
    if connection.vendor == "postgresql" and tell_read_only not in connection.execute_wrappers:
        # In front: code that wraps statements for a while removes the last wrapper at its end.
        connection.execute_wrappers.insert(0, tell_read_only)
