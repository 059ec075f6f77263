"""Connections: a pool in each process, opened when first needed, that outlives the server."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

import psycopg
from psycopg import errors
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout, TooManyRequests

from apps.requeststore.engine.errors import BadSetting, StoreUnavailable

T = TypeVar("T")
Row = tuple[Any, ...]
Cursor = psycopg.Cursor[Row]

APPLICATION: Final = "crawlyard requests"
CONNECTIONS: Final = 8
WAIT_SECONDS: Final = 5.0
_TRIES: Final = 10

# Every statement finds its rows by an index: nothing else is to be planned, however little the
# server knows of a table that fills.
_PLANS: Final = " ".join(
    f"-c enable_{way}=off" for way in ("seqscan", "bitmapscan", "material", "hashjoin", "mergejoin")
)


class Missing(Exception):
    """There is no such table."""


class Pool:
    """Transactions on one server. Thread-safe; a forked process opens connections of its own.

    Raises:
        BadSetting: the address cannot be read.
    """

    def __init__(self, url: str, *, connections: int, wait_seconds: float) -> None:
        try:
            given = psycopg.conninfo.conninfo_to_dict(url)
        except psycopg.ProgrammingError:
            # The text of the error has the address in it, and so a password.
            raise BadSetting("the address of the storage node is none of PostgreSQL") from None
        self._made: ConnectionPool[psycopg.Connection[Row]] | None = None
        self._url = url
        self._connections = connections
        self._wait_seconds = wait_seconds
        self._given = given
        self._abandoned: list[object] = []
        self._closed = False
        self._renew()

    def run(self, work: Callable[[Cursor], T]) -> T:
        """``work`` in a transaction; it may be called more than once, and counts once.

        Raises ``Missing``, ``StoreUnavailable``.
        """
        for attempt in range(1, _TRIES + 1):
            try:
                with self._pool().connection() as connection:
                    with connection.cursor(binary=True) as cursor:
                        answer = work(cursor)
                    connection.commit()
                    return answer
            except (errors.DeadlockDetected, errors.SerializationFailure):
                if attempt == _TRIES:
                    raise StoreUnavailable("PostgreSQL: too many others change the same") from None
            except (errors.UndefinedTable, errors.InvalidSchemaName):
                raise Missing from None
            except (psycopg.Error, PoolTimeout, PoolClosed, TooManyRequests) as error:
                raise StoreUnavailable(f"PostgreSQL: {_said(error)}") from error
        raise AssertionError  # pragma: no cover

    def close(self) -> None:
        """Idempotent."""
        self._closed = True
        with self._lock:
            pool = self._made
        if pool is not None and os.getpid() == self._process:
            pool.close()

    def _renew(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._made = None

    def _pool(self) -> ConnectionPool[psycopg.Connection[Row]]:
        if os.getpid() != self._process:
            # Neither used nor closed: the parent talks through the same sockets.
            self._abandoned.append(self._made)
            self._renew()
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
                    name=APPLICATION,
                    kwargs={
                        "application_name": APPLICATION,
                        "connect_timeout": self._given.get("connect_timeout", 5),
                        "options": f"{self._given.get('options') or ''} {_PLANS}",
                    },
                )
            return self._made


def _said(error: Exception) -> str:
    if isinstance(error, errors.DiskFull):
        return "its disk is full"
    if isinstance(error, PoolTimeout):
        return "no connection; the server is away, or all connections are busy"
    return str(error).strip().partition("\n")[0]
