"""Files and connections: a file for each database, several connections to each.

A connection serves one thread at a time. A forked child opens its own and leaves its parent's
alone: closing them would release locks, and writing would corrupt the file.

A write holds the file's only lock for a few statements on whole batches: arguments go into
temporary tables before, and results are read from them afterwards. Python releases the GIL in each
statement and may wait 5 ms to get it back, during which all other processes would wait.
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

from apps.requeststore.engine.errors import RequestStoreUnavailable
from apps.requeststore.stores.guards import MissingShard
from apps.runtime.engine.sqlite_files import BUSY_SECONDS, make_folder, read, said, when_free, write

T = TypeVar("T")

SUFFIX: Final = ".sqlite3"
# "CYRQ", the application ID of our files.
APPLICATION_ID: Final = 0x43595251
VERSION: Final = 1
# Most idle connections: per file, and in total.
_IDLE: Final = 4
_IDLE_OF_ALL: Final = 64

_TEMPORARY: Final = """
CREATE TEMP TABLE given (
    n INTEGER PRIMARY KEY, id INTEGER, biz TEXT, ts INTEGER, tries INTEGER, flag INTEGER,
    priority INTEGER, owner TEXT, deadline INTEGER, queued_at INTEGER, finished_at INTEGER,
    result BLOB, step TEXT, data BLOB
);
CREATE TEMP TABLE seen (
    id INTEGER PRIMARY KEY, mine INTEGER, biz TEXT, ts INTEGER, flag INTEGER, priority INTEGER,
    owner TEXT, deadline INTEGER, tries INTEGER, queued_at INTEGER, finished_at INTEGER,
    result BLOB, steps TEXT
);
"""


# Connections of the parent in a forked child: never used, and kept alive so that none is closed.
_of_parents: list[object] = []
_open_here: weakref.WeakSet[Files] = weakref.WeakSet()


class Files:
    """Folder of database files. Raises ``RequestStoreUnavailable`` when it is not writable."""

    def __init__(self, folder: Path, *, sync: bool, busy_seconds: float = BUSY_SECONDS) -> None:
        self.folder = folder
        self._sync = sync
        self._busy_seconds = busy_seconds
        self._closed = False
        self._renew()
        _open_here.add(self)
        try:
            make_folder(folder)
        except OSError as error:
            raise RequestStoreUnavailable(
                f"cannot write to {folder}: {error.strerror or error}"
            ) from None

    def path(self, database: str) -> Path:
        """Return the file of a database."""
        return self.folder / f"{database}{SUFFIX}"

    def databases(self) -> list[str]:
        """Return the existing databases."""
        try:
            return sorted(file.stem for file in self.folder.glob(f"*{SUFFIX}"))
        except OSError as error:
            raise RequestStoreUnavailable(f"cannot read {self.folder}: {error}") from None

    def size(self) -> int:
        """Return the bytes of all files."""
        total = 0
        for database in self.databases():
            path = self.path(database)
            for file in (path, path.with_name(f"{path.name}-wal")):
                with suppress(OSError):
                    total += file.stat().st_size
        return total

    @contextmanager
    def connection(
        self, database: str, *, make: bool = False, keep: bool = True
    ) -> Iterator[sqlite3.Connection]:
        """Lend a connection to this thread. Raises ``MissingShard`` without a file and ``make``."""
        connection = self._lend(database, make)
        try:
            yield connection
        except sqlite3.Error as error:
            with suppress(sqlite3.Error):
                connection.close()
            raise translated(error, self.path(database)) from error
        except BaseException:
            with suppress(sqlite3.Error):
                connection.close()
            raise
        if keep:
            self._take_back(database, connection)
        else:
            connection.close()

    def reading(self, database: str, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run ``work`` on a snapshot of the file; it may be called more than once."""
        with self.connection(database) as connection:
            return read(connection, work, self._busy_seconds)

    def writing(
        self,
        database: str,
        work: Callable[[sqlite3.Connection], T],
        *,
        before: Callable[[sqlite3.Connection], object] | None = None,
        after: Callable[[sqlite3.Connection, T], T] | None = None,
        make: bool = False,
        keep: bool = True,
    ) -> T:
        """Run ``work`` under the file's lock; ``before`` and ``after`` run outside of it on
        temporary tables.

        ``keep=False``: closes the connection afterwards, to free the memory of large batches.
        """
        with self.connection(database, make=make, keep=keep) as connection:
            if before is not None:
                connection.execute("BEGIN")
                connection.execute("DELETE FROM temp.given")
                connection.execute("DELETE FROM temp.seen")
                before(connection)
                connection.execute("COMMIT")
            answer = write(connection, work, self._busy_seconds)
            return after(connection, answer) if after is not None else answer

    def close(self) -> None:
        """Close; idempotent."""
        self._closed = True
        with self._lock:
            idle = dict(self._idle)
            self._idle.clear()
        for connections in idle.values():
            for connection in connections:
                with suppress(sqlite3.Error):
                    connection.close()

    def leave_to_parent(self) -> None:
        """Forget the parent's connections, first thing in a forked child."""
        _of_parents.append(self._idle)
        self._renew()

    def _renew(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[str, list[sqlite3.Connection]] = {}

    def _lend(self, database: str, make: bool) -> sqlite3.Connection:
        if self._closed:
            raise RequestStoreUnavailable(f"{self.folder}: closed")
        with self._lock:
            idle = self._idle.get(database)
            if idle:
                return idle.pop()
        path = self.path(database)
        if not make and not path.exists():
            raise MissingShard
        try:
            # Concurrent creation of the same file may conflict.
            return when_free(lambda: _open(path, self._sync), self._busy_seconds)
        except sqlite3.Error as error:
            raise translated(error, path) from error

    def _take_back(self, database: str, connection: sqlite3.Connection) -> None:
        """Return a connection to the pool; beyond the limit the least recently used file's is
        closed.
        """
        with self._lock:
            # Last: the most recently used.
            idle = self._idle[database] = self._idle.pop(database, [])
            if not self._closed:
                idle.append(connection)
                if len(idle) <= _IDLE and sum(map(len, self._idle.values())) <= _IDLE_OF_ALL:
                    return
                other = database if len(idle) > _IDLE else next(iter(self._idle))
                connection = self._idle[other].pop()
                if not self._idle[other]:
                    del self._idle[other]
        connection.close()


def _after_fork() -> None:
    for files in list(_open_here):
        files.leave_to_parent()


os.register_at_fork(after_in_child=_after_fork)


def _open(path: Path, sync: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=2.0)
    try:
        _prepare(connection, path, sync)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path, sync: bool) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if not version:
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
    for pragma in (
        "journal_mode=WAL",
        f"synchronous={'FULL' if sync else 'NORMAL'}",
        "secure_delete=OFF",
        "temp_store=MEMORY",
        "cache_size=-16000",
        # A checkpoint syncs twice: every 16 MB instead of SQLite's 4 MB.
        "wal_autocheckpoint=4000",
        f"journal_size_limit={32 * 1024 * 1024}",
    ):
        connection.execute(f"PRAGMA {pragma}").fetchone()
    if not version:
        connection.execute("BEGIN IMMEDIATE")
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        if tables and application != APPLICATION_ID:
            raise RequestStoreUnavailable(f"{path} is a SQLite database, but not of requests")
        connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version={VERSION}")
        connection.execute("COMMIT")
    elif version > VERSION:
        raise RequestStoreUnavailable(f"{path} was made by a newer version; upgrade this process")
    connection.executescript(_TEMPORARY)
    # Short timeout and retry: SQLite's back-off grows, and a long waiter would starve.
    connection.execute("PRAGMA busy_timeout=10")


def translated(error: sqlite3.Error, path: Path) -> Exception:
    """Return ``MissingShard`` for a missing table, else ``RequestStoreUnavailable``."""
    code: int = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_ERROR and "no such table" in str(error):
        return MissingShard()
    return RequestStoreUnavailable(f"{path}: {said(error)}")
