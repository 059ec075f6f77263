"""Connection pool of the log store's server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from psycopg import errors

from apps.joblogs.stores.base import LogStoreUnavailable
from apps.joblogs.stores.postgres.schema import SCHEMA
from apps.runtime.engine.postgres_pool import AWAY, WAIT_SECONDS, Cursor, ProcessPool, said

T = TypeVar("T")

APPLICATION: Final = "crawlyard logs"
CONNECTIONS: Final = 6
_TRIES: Final = 10
# Forces index scans, because the planner lacks statistics while a table fills; and large batches of
# pending entries for the GIN index of words.
_OPTIONS: Final = (
    f"-c search_path={SCHEMA} -c jit=off -c enable_seqscan=off -c enable_bitmapscan=off"
    " -c enable_sort=off -c random_page_cost=1.1 -c work_mem=32MB"
    " -c timezone=UTC -c client_encoding=utf8"
)
# Serialization failure or deadlock: a retry succeeds.
_AGAIN: Final = (
    errors.DeadlockDetected,
    errors.SerializationFailure,
    errors.UniqueViolation,
    errors.DuplicateTable,
    errors.DuplicateSchema,
    # The day was dropped concurrently.
    errors.UndefinedTable,
)


class LogPool:
    """Transactions on one server. Thread-safe; a forked process opens connections of its own.

    Raises:
        ValueError: the address is invalid.
    """

    def __init__(self, url: str, *, wait_seconds: float = WAIT_SECONDS) -> None:
        try:
            self._pool = ProcessPool(
                url,
                application=APPLICATION,
                options=_OPTIONS,
                connections=CONNECTIONS,
                wait_seconds=wait_seconds,
            )
        except ValueError as error:
            raise ValueError("the address of the log store is none of PostgreSQL") from error

    def run(self, work: Callable[[Cursor], T], *, reading: bool = False) -> T:
        """Run ``work`` in a transaction; it may be called several times and is committed once.

        ``reading``: use a read-only snapshot.

        Raises:
            LogStoreUnavailable
            ValueError: a value that the server cannot hold.
        """
        for attempt in range(1, _TRIES + 1):
            try:
                with self._pool.open().connection() as connection:
                    with connection.cursor() as cursor:
                        if reading:
                            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                        answer = work(cursor)
                    connection.commit()
                    return answer
            except _AGAIN as error:
                if attempt == _TRIES:
                    raise LogStoreUnavailable(f"PostgreSQL: {said(error)}") from error
            except errors.DataError as error:
                raise ValueError(f"a line cannot be stored: {said(error)}") from error
            except AWAY as error:
                raise LogStoreUnavailable(f"PostgreSQL: {said(error)}") from error
        raise AssertionError  # pragma: no cover

    def close(self) -> None:
        """Idempotent."""
        self._pool.close()
