"""Conversion of times to and from microseconds since 1970. Plain Python."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def microseconds(at: datetime) -> int:
    """Convert a datetime to microseconds since 1970."""
    return (at - _EPOCH) // _MICROSECOND


def moment_of(micros: int) -> datetime:
    """Convert microseconds since 1970 to a datetime."""
    return _EPOCH + timedelta(microseconds=micros)
