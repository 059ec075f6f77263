"""Request IDs: Snowflakes with a leased worker number.

Two processes never produce the same ID, whatever their clocks do: the number is leased in the
database, and the highest time its IDs may use is stored there in advance, under the generation of
the lease. A process that slept through its lease fails to advance that mark and leases another
number.
"""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Final, TypeVar

from django.db import connection

from apps.requeststore.engine.errors import RequestStoreUnavailable
from apps.runtime.errors import DATABASE_AWAY, LeaseLost, NoFreeNumber
from apps.runtime.models import WorkerLease
from apps.runtime.services import DatabaseHighWater, lease_worker, release_lease, renew_lease
from yardkit.clock import Clock, SystemClock
from yardkit.snowflake import Snowflake

PURPOSE: Final = "snowflake"
LEASE: Final = timedelta(seconds=60)
# Renewed long before its end, so that a slow database does not cost the number.
RENEW_SECONDS: Final = 20.0

_T = TypeVar("_T")


class IdGenerator:
    """ID generator of one process. Thread-safe; a forked child leases its own number.

    The first ID leases a number; then one write for each 2 s in which IDs are made, and a renewal
    every 20 s.
    """

    def __init__(self, *, clock: Clock | None = None, owner: str = "") -> None:
        self._clock = clock or SystemClock()
        self._owner = owner
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._lease: WorkerLease | None = None
        self._ids: Snowflake | None = None
        self._renew_at = 0.0

    @property
    def worker(self) -> int | None:
        """Return the leased number; None before the first ID."""
        return self._lease.number if self._lease is not None else None

    def next_many(self, count: int) -> list[int]:
        """Return ``count`` ascending IDs.

        Call it outside of a transaction, whose rollback would undo the stored mark.

        Raises:
            RequestStoreUnavailable: the database does not answer, or all 1024 numbers are leased.
        """
        with self._lock:
            if self._pid != os.getpid():
                # The lease belongs to the parent process.
                self._pid, self._lease, self._ids = os.getpid(), None, None
            return _asked(lambda: self._next(count))

    def close(self) -> None:
        """Release the number; the next ID leases one again."""
        with self._lock:
            lease, self._lease, self._ids = self._lease, None, None
            if lease is not None and self._pid == os.getpid():
                try:
                    _asked(lambda: release_lease(lease=lease))
                except RequestStoreUnavailable:
                    # The lease then expires by itself.
                    return

    def _next(self, count: int) -> list[int]:
        for _ in range(3):
            try:
                return self._generator().next_many(count)
            except LeaseLost:
                self._lease = self._ids = None
        raise RequestStoreUnavailable(
            "the worker id of this process is taken from it again and again"
        )

    def _generator(self) -> Snowflake:
        now = self._clock.monotonic()
        if self._ids is None or self._lease is None:
            # A unique owner name each time: a lost number must not be reacquired, because its new
            # owner may be alive.
            owner = f"{self._owner or socket.gethostname()}:{self._pid}:{uuid.uuid4().hex[:12]}"
            self._lease = lease_worker(purpose=PURPOSE, owner=owner, ttl=LEASE)
            self._ids = Snowflake(
                self._lease.number, DatabaseHighWater(self._lease), clock=self._clock, rolling=True
            )
            self._renew_at = now + RENEW_SECONDS
        elif now >= self._renew_at:
            renew_lease(lease=self._lease, ttl=LEASE)
            self._renew_at = now + RENEW_SECONDS
        return self._ids


def _asked(ask: Callable[[], _T]) -> _T:
    try:
        return ask()
    except NoFreeNumber as error:
        raise RequestStoreUnavailable("all worker ids of the id service are in use") from error
    except DATABASE_AWAY as error:
        connection.close_if_unusable_or_obsolete()
        raise RequestStoreUnavailable("the database, which ids need, does not answer") from error
