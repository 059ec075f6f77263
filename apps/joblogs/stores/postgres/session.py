"""Transaction of the PostgreSQL log store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from apps.joblogs.engine.words import Phrase
from apps.joblogs.stores.accounts import as_stored
from apps.joblogs.stores.base import Search
from apps.joblogs.stores.days.session import Row, StoreSession, table
from apps.joblogs.stores.postgres import search as line_search
from apps.runtime.engine.postgres_pool import Cursor


class PostgresLogSession(StoreSession):
    """See ``StoreSession``."""

    FOR_UPDATE: ClassVar[str] = " FOR UPDATE"

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor

    def all(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """See ``StoreSession.all``."""
        # Not prepared: tables of days come and go, so a cached plan is rarely reused.
        return self.cursor.execute(
            sql.replace("?", "%s"), storable(values), prepare=False
        ).fetchall()

    def execute(self, sql: str, values: Sequence[Any] = ()) -> None:
        """See ``StoreSession.execute``."""
        self.cursor.execute(sql.replace("?", "%s"), values)

    def many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """See ``StoreSession.many``."""
        self.cursor.executemany(sql.replace("?", "%s"), rows)

    def containing(self, wanted: str) -> tuple[str, str]:
        """See ``StoreSession.containing``."""
        return 'text ILIKE ? COLLATE "und-x-icu"', f"%{line_search.literal(as_stored(wanted))}%"

    def lock_day(self, day: int) -> None:
        """See ``StoreSession.lock_day``."""
        self.all("SELECT day FROM days WHERE day = ? FOR UPDATE", (day,))

    def drop_tables(self, day: int) -> None:
        """See ``StoreSession.drop_tables``."""
        self.execute(f"DROP TABLE IF EXISTS lines_{table(day)}")

    def forget(self, day: int, project: int, job: int, rows: Sequence[Row]) -> None:
        """See ``StoreSession.forget``."""
        self.execute(
            f"DELETE FROM lines_{table(day)} WHERE id = ANY(?)",  # noqa: S608 - a name of our own
            ([row[0] for row in rows],),
        )

    def newest(
        self, search: Search, phrases: Sequence[Phrase], day: int, low: int, high: int, limit: int
    ) -> list[Row]:
        """See ``StoreSession.newest``."""
        return line_search.newest(self, search, phrases, day, low, high, limit)

    def alike(
        self, search: Search, phrases: Sequence[Phrase], day: int, low: int, high: int
    ) -> list[Row]:
        """See ``StoreSession.alike``."""
        return line_search.alike(self, search, phrases, day, low, high)


def storable(values: Sequence[Any]) -> Sequence[Any]:
    """Replace NUL and half surrogates, which no stored text contains."""
    if any(isinstance(value, str) and not value.isprintable() for value in values):
        return [_printable(value) if isinstance(value, str) else value for value in values]
    return values


def _printable(text: str) -> str:
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()
