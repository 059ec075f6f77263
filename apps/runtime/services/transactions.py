"""Transactions with retries after deadlocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from django.db import OperationalError, connection, transaction

T = TypeVar("T")

_TRIES: Final = 4
_DEADLOCK_DETECTED: Final = "40P01"


def in_short_transaction(work: Callable[[], T]) -> T:
    """Run ``work`` in a transaction; retry up to three times after a PostgreSQL deadlock."""
    for left in reversed(range(_TRIES)):
        try:
            with transaction.atomic():
                return work()
        except OperationalError as error:
            deadlock = getattr(error.__cause__, "sqlstate", "") == _DEADLOCK_DETECTED
            # An outer transaction is rolled back with the inner one.
            if not (deadlock and left) or connection.in_atomic_block:
                raise
    raise AssertionError("unreachable")
