"""``LogStore`` on SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from apps.joblogs.engine.moments import microseconds
from apps.joblogs.stores.accounts import gathered
from apps.joblogs.stores.base import LineBatch
from apps.joblogs.stores.days.session import StoreSession
from apps.joblogs.stores.days.store import DayStore
from apps.joblogs.stores.sqlite import writes
from apps.joblogs.stores.sqlite.database import LogFile
from apps.joblogs.stores.sqlite.session import SqliteLogSession
from apps.runtime.engine.sqlite_files import BUSY_SECONDS

T = TypeVar("T")


class SqliteLogStore(DayStore):
    """See ``LogStore``. ``sync``: written lines survive a power failure, too."""

    def __init__(
        self, folder: Path, *, sync: bool = False, busy_seconds: float = BUSY_SECONDS
    ) -> None:
        self._database = LogFile(folder, sync=sync, busy_seconds=busy_seconds)

    def setup(self) -> None:
        """See ``LogStore.setup``."""
        self._database.setup()

    def close(self) -> None:
        """See ``LogStore.close``."""
        self._database.close()

    def check(self) -> str:
        """See ``LogStore.check``."""
        days = self._reading(lambda session: session.all("SELECT count(*) FROM days")[0][0])
        return f"SQLite {sqlite3.sqlite_version}, {days} days in {self._database.path}"

    def write(self, batches: Sequence[LineBatch], *, now: datetime) -> int:
        """See ``LogStore.write``."""
        incoming, micros = gathered(batches), microseconds(now)
        return self._database.writing(lambda connection: writes.write(connection, incoming, micros))

    def prune(self, *, now: datetime) -> None:
        """See ``LogStore.prune``."""
        super().prune(now=now)
        self._database.outside("PRAGMA incremental_vacuum")

    def _reading(self, work: Callable[[StoreSession], T]) -> T:
        return self._database.reading(lambda connection: work(SqliteLogSession(connection)))

    def _writing(self, work: Callable[[StoreSession], T]) -> T:
        return self._database.writing(lambda connection: work(SqliteLogSession(connection)))
