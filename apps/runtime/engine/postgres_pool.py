"""PostgreSQL connection pool of stores that do not use Django's connections."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, Final

import psycopg
from psycopg import errors
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout, TooManyRequests

from apps.runtime.engine.postgres_link import link_options

Row = tuple[Any, ...]
Cursor = psycopg.Cursor[Row]

WAIT_SECONDS: Final = 5.0
_pools: weakref.WeakSet[ProcessPool] = weakref.WeakSet()
# Raised by ``ProcessPool`` when the server or a connection is not available.
AWAY: Final = (psycopg.Error, PoolTimeout, PoolClosed, TooManyRequests)


class ProcessPool:
    """Connection pool of each process: opened on first use, survives restarts of the server.

    Thread-safe; a forked process opens its own connections. ``options`` are server settings, such
    as ``-c jit=off``, added to those of the URL.

    Raises ValueError for an invalid URL; the text omits the URL, which may contain a password.
    """

    def __init__(
        self, url: str, *, application: str, options: str, connections: int, wait_seconds: float
    ) -> None:
        try:
            given = psycopg.conninfo.conninfo_to_dict(url)
        except psycopg.ProgrammingError:
            raise ValueError("not an address of PostgreSQL") from None
        self._url = url
        self._connections = connections
        self._wait_seconds = wait_seconds
        self._kwargs = {
            "application_name": application,
            **link_options(url),
            "options": f"{given.get('options') or ''} {options}",
        }
        self._made: ConnectionPool[psycopg.Connection[Row]] | None = None
        self._abandoned: list[object] = []
        self._closed = False
        self._renew()
        _pools.add(self)

    def open(self) -> ConnectionPool[psycopg.Connection[Row]]:
        """Return the pool of this process. Raises ``PoolClosed`` after ``close``."""
        with self._lock:
            if self._closed:
                raise PoolClosed("closed")
            if self._made is None:
                self._made = ConnectionPool(
                    self._url,
                    min_size=1,
                    max_size=self._connections,
                    timeout=self._wait_seconds,
                    reconnect_timeout=self._wait_seconds,
                    open=True,
                    check=ConnectionPool.check_connection,
                    name=str(self._kwargs["application_name"]),
                    kwargs=self._kwargs,
                )
            return self._made

    def close(self) -> None:
        """Close the pool. Idempotent."""
        self._closed = True
        with self._lock:
            pool = self._made
        if pool is not None:
            pool.close()

    def reset_after_fork(self) -> None:
        """Discard the parent's pool in a forked child without closing it: its sockets are the
        parent's, and a lock that another thread held is never released here.
        """
        self._abandoned.append(self._made)
        self._renew()

    def _renew(self) -> None:
        self._lock = threading.Lock()
        self._made = None


def _reset_after_fork() -> None:
    for pool in list(_pools):
        pool.reset_after_fork()


# Now, while the child has a single thread: on first use two threads may race.
os.register_at_fork(after_in_child=_reset_after_fork)


def said(error: Exception) -> str:
    """Return the server's error, or why it was unreachable, in one line."""
    if isinstance(error, errors.DiskFull):
        return "its disk is full"
    if isinstance(error, PoolTimeout):
        return "no connection; the server is away, or all connections are busy"
    return str(error).strip().partition("\n")[0]
