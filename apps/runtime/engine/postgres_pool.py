"""Connections to a PostgreSQL that a store keeps its rows in, apart from Django's own."""

from __future__ import annotations

import os
import threading
from typing import Any, Final

import psycopg
from psycopg import errors
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout, TooManyRequests

Row = tuple[Any, ...]
Cursor = psycopg.Cursor[Row]

WAIT_SECONDS: Final = 5.0
# What ``ProcessPool`` raises when the server, or a connection to it, is not to be had.
AWAY: Final = (psycopg.Error, PoolTimeout, PoolClosed, TooManyRequests)


class ProcessPool:
    """A pool in each process, opened when first needed, that outlives the server.

    Thread-safe; a forked process opens connections of its own.

    Args:
        options: server settings, ``-c jit=off ...``, beside those of the address.

    Raises:
        ValueError: the address cannot be read. Without it: it may have a password.
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
            "connect_timeout": given.get("connect_timeout", 5),
            "options": f"{given.get('options') or ''} {options}",
        }
        self._made: ConnectionPool[psycopg.Connection[Row]] | None = None
        self._abandoned: list[object] = []
        self._closed = False
        self._renew()

    def open(self) -> ConnectionPool[psycopg.Connection[Row]]:
        """That of this process.

        Raises:
            PoolClosed: after ``close``.
        """
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
                    name=str(self._kwargs["application_name"]),
                    kwargs=self._kwargs,
                )
            return self._made

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


def said(error: Exception) -> str:
    """What the server said, or why nobody could ask it, in one line."""
    if isinstance(error, errors.DiskFull):
        return "its disk is full"
    if isinstance(error, PoolTimeout):
        return "no connection; the server is away, or all connections are busy"
    return str(error).strip().partition("\n")[0]
