"""Id of the current web request, for audit records, errors and logs."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

# Safe in a header, a log line and a file name; long enough for a UUID or a trace id.
_USABLE = re.compile(r"[A-Za-z0-9._\-]{8,64}")
_current: ContextVar[str] = ContextVar("request_id", default="")


def usable_request_id(offered: str | None) -> str:
    """``offered`` if it is 8 to 64 characters of ``A-Za-z0-9._-``, else a fresh id."""
    if offered and _USABLE.fullmatch(offered):
        return offered
    return secrets.token_hex(16)


def current_request_id() -> str:
    """Return the id of the current request; "" outside of one."""
    return _current.get()


@contextmanager
def request_id_scope(request_id: str) -> Iterator[None]:
    """Context manager that sets the current request id."""
    token = _current.set(request_id)
    try:
        yield
    finally:
        _current.reset(token)
