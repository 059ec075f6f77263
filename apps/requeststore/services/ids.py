"""Ids of requests: Snowflakes of a worker id that this process has on loan (seed S4.7, S4.8).

Two processes never give out the same id, whatever their clocks do: the number is leased in the
database, and how far its ids may have gone is written there before they go there, under the
generation of the lease. A process that slept through its lease is refused its next mark and leases
another number.
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

from apps.requeststore.engine.errors import StoreUnavailable
from apps.runtime.errors import DATABASE_AWAY, LeaseLost, NoFreeNumber
from apps.runtime.models import WorkerLease
from apps.runtime.services import DatabaseHighWater, lease_worker, release_lease, renew_lease
from yardkit.clock import Clock, SystemClock
from yardkit.snowflake import Snowflake

PURPOSE: Final = "snowflake"
LEASE: Final = timedelta(seconds=60)
# Long before its end, so that a slow database costs nobody his number.
RENEW_SECONDS: Final = 20.0

_T = TypeVar("_T")


class Ids:
    """The id service of one process. Thread-safe; goes on with a number of its own after a fork.

    The first id asks the database for a number; afterwards there is one write for each 2 s in
    which ids are wanted, and a renewal each 20 s.
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
        """The number on loan; None before the first id."""
        return self._lease.number if self._lease is not None else None

    def next_many(self, count: int) -> list[int]:
        """``count`` ids in rising order.

        Call it outside of a transaction: its rollback would undo the mark.

        Raises:
            StoreUnavailable: the database does not answer, or all 1024 numbers are taken.
        """
        with self._lock:
            if self._pid != os.getpid():
                # The parent's lease is the parent's.
                self._pid, self._lease, self._ids = os.getpid(), None, None
            return _asked(lambda: self._next(count))

    def close(self) -> None:
        """Give the number back; the next id leases one again."""
        with self._lock:
            lease, self._lease, self._ids = self._lease, None, None
            if lease is not None and self._pid == os.getpid():
                try:
                    _asked(lambda: release_lease(lease=lease))
                except StoreUnavailable:
                    # Then it runs out by itself.
                    return

    def _next(self, count: int) -> list[int]:
        for _ in range(3):
            try:
                return self._generator().next_many(count)
            except LeaseLost:
                self._lease = self._ids = None
        raise StoreUnavailable("the worker id of this process is taken from it again and again")

    def _generator(self) -> Snowflake:
        now = self._clock.monotonic()
        if self._ids is None or self._lease is None:
            # A name of its own each time: a number that was lost must not be got back, because
            # the process that has it now may be alive.
            owner = f"{self._owner or socket.gethostname()}:{self._pid}:{uuid.uuid4().hex[:12]}"
            self._lease = lease_worker(purpose=PURPOSE, owner=owner, ttl=LEASE)
            self._ids = Snowflake(
                self._lease.number,
                DatabaseHighWater(self._lease),
                clock=self._clock,
                rolling=True,
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
        raise StoreUnavailable("all worker ids of the id service are in use") from error
    except DATABASE_AWAY as error:
        connection.close_if_unusable_or_obsolete()
        raise StoreUnavailable("the database, which ids need, does not answer") from error
