"""Connections: a pool in each process, opened when first needed, that outlives the server."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

import psycopg
from psycopg import errors
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout, TooManyRequests

from apps.joblogs.stores.base import StoreUnavailable
from apps.joblogs.stores.postgres.schema import SCHEMA

T = TypeVar("T")
Row = tuple[Any, ...]
Cursor = psycopg.Cursor[Row]

APPLICATION: Final = "crawlyard logs"
CONNECTIONS: Final = 6
WAIT_SECONDS: Final = 5.0
_TRIES: Final = 10
# Lines are found along an index, however little the server knows yet of a table that fills; and
# what waits to be put into the index of words goes there in large portions.
_OPTIONS: Final = (
    f"-c search_path={SCHEMA} -c jit=off -c enable_seqscan=off -c enable_bitmapscan=off"
    " -c enable_sort=off -c random_page_cost=1.1 -c work_mem=32MB"
    " -c timezone=UTC -c client_encoding=utf8"
)
# Somebody else was faster, or in the way: the same again succeeds.
_AGAIN: Final = (
    errors.DeadlockDetected,
    errors.SerializationFailure,
    errors.UniqueViolation,
    errors.DuplicateTable,
    errors.DuplicateSchema,
    # A day that was dropped meanwhile.
    errors.UndefinedTable,
)


class Pool:
    """Transactions on one server. Thread-safe; a forked process opens connections of its own.

    Raises:
        ValueError: the address cannot be read.
    """

    def __init__(self, url: str, *, wait_seconds: float = WAIT_SECONDS) -> None:
        try:
            given = psycopg.conninfo.conninfo_to_dict(url)
        except psycopg.ProgrammingError:
            # The text of the error has the address in it, and so a password.
            raise ValueError("the address of the log store is none of PostgreSQL") from None
        self._url = url
        self._given = given
        self._wait_seconds = wait_seconds
        self._abandoned: list[object] = []
        self._closed = False
        self._renew()

    def run(self, work: Callable[[Cursor], T], *, reading: bool = False) -> T:
        """``work`` in a transaction; it may be called more than once, and counts once.

        ``reading``: it sees everything as it is at one moment.

        Raises:
            StoreUnavailable
            ValueError: a value that the server cannot hold.
        """
        for attempt in range(1, _TRIES + 1):
            try:
                with self._pool().connection() as connection:
                    with connection.cursor() as cursor:
                        if reading:
                            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                        answer = work(cursor)
                    connection.commit()
                    return answer
            except _AGAIN as error:
                if attempt == _TRIES:
                    raise StoreUnavailable(f"PostgreSQL: {_said(error)}") from error
            except errors.DataError as error:
                raise ValueError(f"a line cannot be stored: {_said(error)}") from error
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
        self._made: ConnectionPool[psycopg.Connection[Row]] | None = None

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
                    max_size=CONNECTIONS,
                    timeout=self._wait_seconds,
                    reconnect_timeout=self._wait_seconds,
                    open=True,
                    check=ConnectionPool.check_connection,
                    name=APPLICATION,
                    kwargs={
                        "application_name": APPLICATION,
                        "connect_timeout": self._given.get("connect_timeout", 5),
                        "options": f"{self._given.get('options') or ''} {_OPTIONS}",
                    },
                )
            return self._made


def _said(error: Exception) -> str:
    if isinstance(error, errors.DiskFull):
        return "its disk is full"
    if isinstance(error, PoolTimeout):
        return "no connection; the server is away, or all connections are busy"
    return str(error).strip().partition("\n")[0]
