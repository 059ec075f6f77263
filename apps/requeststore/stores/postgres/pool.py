"""Connection pool of a storage node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from psycopg import errors

from apps.requeststore.engine.errors import BadSetting, RequestStoreUnavailable
from apps.requeststore.stores.guards import MissingShard
from apps.runtime.engine.postgres_pool import AWAY, Cursor, ProcessPool, said

T = TypeVar("T")

APPLICATION: Final = "crawlyard requests"
CONNECTIONS: Final = 8
_TRIES: Final = 10

# Every statement finds its rows by an index: sequential scans are disabled, because a growing
# table has no statistics yet.
_PLANS: Final = " ".join(
    f"-c enable_{way}=off" for way in ("seqscan", "bitmapscan", "material", "hashjoin", "mergejoin")
)


class NodePool:
    """Transactions on one server. Thread-safe; a forked child opens its own connections.

    Raises:
        BadSetting: the URL is invalid.
    """

    def __init__(self, url: str, *, connections: int, wait_seconds: float) -> None:
        try:
            self._pool = ProcessPool(
                url,
                application=APPLICATION,
                options=_PLANS,
                connections=connections,
                wait_seconds=wait_seconds,
            )
        except ValueError as error:
            raise BadSetting("the address of the storage node is none of PostgreSQL") from error

    def run(self, work: Callable[[Cursor], T]) -> T:
        """Run ``work`` in a transaction, repeated when it conflicts.

        Raises ``MissingShard``, ``RequestStoreUnavailable``.
        """
        for attempt in range(1, _TRIES + 1):
            try:
                with self._pool.open().connection() as connection:
                    with connection.cursor(binary=True) as cursor:
                        answer = work(cursor)
                    connection.commit()
                    return answer
            except (errors.DeadlockDetected, errors.SerializationFailure):
                if attempt == _TRIES:
                    raise RequestStoreUnavailable(
                        "PostgreSQL: too many others change the same"
                    ) from None
            except (errors.UndefinedTable, errors.InvalidSchemaName):
                raise MissingShard from None
            except AWAY as error:
                raise RequestStoreUnavailable(f"PostgreSQL: {said(error)}") from error
        raise AssertionError  # pragma: no cover

    def close(self) -> None:
        """Close; idempotent."""
        self._pool.close()
