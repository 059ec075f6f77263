"""Times as log lines keep them: microseconds since 1970 (plain Python, no Django)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def microseconds(at: datetime) -> int:
    """Since 1970."""
    return (at - _EPOCH) // _MICROSECOND


def moment_of(micros: int) -> datetime:
    """The reverse of ``microseconds``."""
    return _EPOCH + timedelta(microseconds=micros)
