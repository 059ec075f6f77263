"""The SQLite file and its connections.

A connection serves one thread at a time. A forked process opens its own connections and leaves
those of its parent alone: closing them would release locks, and writing would corrupt the file.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

from apps.joblogs.stores.base import LogStoreUnavailable
from apps.joblogs.stores.sqlite.schema import TABLES, holds
from apps.runtime.engine.sqlite_files import BUSY_SECONDS, make_folder, read, said, when_free, write

T = TypeVar("T")

NAME: Final = "logs.sqlite3"
# "CYLG": marks the file as a store of log lines.
APPLICATION_ID: Final = 0x43594C47
VERSION: Final = 1
_IDLE: Final = 4
_MIB: Final = 1024 * 1024

_of_parents: list[object] = []
_open_here: weakref.WeakSet[LogFile] = weakref.WeakSet()


class LogFile:
    """Transactions on the file. Raises ``LogStoreUnavailable`` if it cannot be written."""

    def __init__(self, folder: Path, *, sync: bool, busy_seconds: float = BUSY_SECONDS) -> None:
        self.path = folder / NAME
        self._sync = sync
        self._busy_seconds = busy_seconds
        self._closed = False
        self._renew()
        _open_here.add(self)

    def setup(self) -> None:
        """Create the folder and the file."""
        folder = self.path.parent
        try:
            make_folder(folder)
        except OSError as error:
            raise LogStoreUnavailable(
                f"cannot write to {folder}: {error.strerror or error}"
            ) from None
        with self._connection():
            pass

    def reading(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run ``work`` on a snapshot of the file; it may be called several times."""
        with self._connection() as connection:
            return read(connection, work, self._busy_seconds)

    def writing(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run ``work`` while holding the write lock of the file."""
        with self._connection() as connection:
            return write(connection, work, self._busy_seconds)

    def outside(self, statement: str) -> None:
        """Execute a statement outside of a transaction."""
        with self._connection() as connection:
            when_free(lambda: connection.execute(statement).fetchall(), self._busy_seconds)

    def close(self) -> None:
        """Idempotent."""
        self._closed = True
        with self._lock:
            idle = list(self._idle)
            self._idle.clear()
        for connection in idle:
            with suppress(sqlite3.Error):
                connection.close()

    def leave_to_parent(self) -> None:
        """Abandon the parent's connections, in a forked child before anything else."""
        _of_parents.append(self._idle)
        self._renew()

    def _renew(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[sqlite3.Connection] = []

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        connection = self._lend()
        try:
            yield connection
        except sqlite3.Error as error:
            with suppress(sqlite3.Error):
                connection.close()
            raise self._translated(error) from error
        except BaseException:
            with suppress(sqlite3.Error):
                connection.close()
            raise
        with self._lock:
            if not self._closed and len(self._idle) < _IDLE:
                self._idle.append(connection)
                return
        connection.close()

    def _lend(self) -> sqlite3.Connection:
        if self._closed:
            raise LogStoreUnavailable(f"{self.path}: closed")
        with self._lock:
            if self._idle:
                return self._idle.pop()
        try:
            # Processes that create the same file concurrently may block each other.
            return when_free(self._open, self._busy_seconds)
        except sqlite3.Error as error:
            raise self._translated(error) from error

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, isolation_level=None, check_same_thread=False, timeout=2.0
        )
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if not version:
            connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        for pragma in (
            "journal_mode=WAL",
            f"synchronous={'FULL' if self._sync else 'NORMAL'}",
            "secure_delete=OFF",
            "temp_store=MEMORY",
            "cache_size=-32000",
            # Each checkpoint syncs the disk twice: at 32 MB, not at SQLite's 4 MB.
            "wal_autocheckpoint=8000",
            f"journal_size_limit={64 * _MIB}",
        ):
            connection.execute(f"PRAGMA {pragma}").fetchone()
        if version > VERSION:
            raise LogStoreUnavailable(
                f"{self.path} was made by a newer version; upgrade this process"
            )
        if version < VERSION:
            self._make(connection)
        connection.create_function("holds", 2, holds, deterministic=True)
        # Short, with our own retries: SQLite's back-off grows, so the longest waiter would come
        # last.
        connection.execute("PRAGMA busy_timeout=10")

    def _make(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        if tables and application != APPLICATION_ID:
            raise LogStoreUnavailable(f"{self.path} is a SQLite database, but not of log lines")
        for statement in TABLES:
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version={VERSION}")
        connection.execute("COMMIT")

    def _translated(self, error: sqlite3.Error) -> Exception:
        return LogStoreUnavailable(f"{self.path}: {said(error)}")


def _after_fork() -> None:
    for database in list(_open_here):
        database.leave_to_parent()


os.register_at_fork(after_in_child=_after_fork)
