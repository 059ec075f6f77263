"""``LogStore`` on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeVar

from apps.joblogs.engine.moments import microseconds
from apps.joblogs.stores.accounts import gathered
from apps.joblogs.stores.base import LineBatch
from apps.joblogs.stores.days.session import StoreSession
from apps.joblogs.stores.days.store import DayStore
from apps.joblogs.stores.postgres import vacuum, writes
from apps.joblogs.stores.postgres.pool import LogPool
from apps.joblogs.stores.postgres.schema import SETUP_LOCK, TABLES
from apps.joblogs.stores.postgres.session import PostgresLogSession
from apps.runtime.engine.postgres_pool import WAIT_SECONDS, Cursor

T = TypeVar("T")


class PostgresLogStore(DayStore):
    """See ``LogStore``. Raises ``ValueError`` for an address that libpq does not understand."""

    def __init__(self, url: str, *, wait_seconds: float = WAIT_SECONDS) -> None:
        self._pool = LogPool(url, wait_seconds=wait_seconds)
        self._numbers = writes.LineNumbers()

    def setup(self) -> None:
        """See ``LogStore.setup``."""

        def work(cursor: Cursor) -> None:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", (SETUP_LOCK,))
            cursor.execute("SELECT to_regclass('days')")
            if cursor.fetchone() == (None,):
                cursor.execute(TABLES)

        self._pool.run(work)

    def close(self) -> None:
        """See ``LogStore.close``."""
        self._pool.close()

    def check(self) -> str:
        """See ``LogStore.check``."""

        def work(session: StoreSession) -> str:
            ((version,),) = session.all("SELECT current_setting('server_version')")
            ((days,),) = session.all("SELECT count(*) FROM days")
            return f"PostgreSQL {version}, {days} days"

        return self._reading(work)

    def write(self, batches: Sequence[LineBatch], *, now: datetime) -> int:
        """See ``LogStore.write``."""
        incoming, micros = gathered(batches), microseconds(now)
        return self._pool.run(lambda cursor: writes.write(cursor, incoming, micros, self._numbers))

    def prune(self, *, now: datetime) -> None:
        """See ``LogStore.prune``."""
        super().prune(now=now)
        self._pool.run(vacuum.tidy)

    def _reading(self, work: Callable[[StoreSession], T]) -> T:
        return self._pool.run(lambda cursor: work(PostgresLogSession(cursor)), reading=True)

    def _writing(self, work: Callable[[StoreSession], T]) -> T:
        return self._pool.run(lambda cursor: work(PostgresLogSession(cursor)))
