"""Transaction of the SQLite log store."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from apps.joblogs.engine.words import Phrase, spaced
from apps.joblogs.stores.base import Search
from apps.joblogs.stores.days.session import Row, StoreSession, table
from apps.joblogs.stores.sqlite import search as line_search
from apps.joblogs.stores.sqlite.schema import WORDS_VERSION, containing, tags_of


class SqliteLogSession(StoreSession):
    """See ``StoreSession``."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def all(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """See ``StoreSession.all``."""
        return self.connection.execute(sql, values).fetchall()

    def execute(self, sql: str, values: Sequence[Any] = ()) -> None:
        """See ``StoreSession.execute``."""
        self.connection.execute(sql, values)

    def many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """See ``StoreSession.many``."""
        self.connection.executemany(sql, rows)

    def containing(self, wanted: str) -> tuple[str, str]:
        """See ``StoreSession.containing``."""
        return containing(wanted, "text")

    def lock_day(self, day: int) -> None:
        """Nothing to do: a writer has locked the whole file."""

    def drop_tables(self, day: int) -> None:
        """See ``StoreSession.drop_tables``."""
        self.connection.execute(f"DROP TABLE words_{table(day)}")
        self.connection.execute(f"DROP TABLE lines_{table(day)}")

    def forget(self, day: int, project: int, job: int, rows: Sequence[Row]) -> None:
        """See ``StoreSession.forget``."""
        name = table(day)
        ((version,),) = self.all("SELECT words FROM days WHERE day = ?", (day,))
        if version == WORDS_VERSION:
            # FTS5 removes exactly the text it is given. A different text would leave words of
            # deleted lines in the index.
            self.many(
                f"INSERT INTO words_{name} (words_{name}, rowid, words, tags)"  # noqa: S608 - a name of our own
                " VALUES ('delete', ?, ?, ?)",
                [
                    (pk, spaced(text), tags_of(project, job, execution, level))
                    for pk, text, execution, level in rows
                ],
            )
        self.many(f"DELETE FROM lines_{name} WHERE id = ?", [row[:1] for row in rows])  # noqa: S608 - a name of our own

    def newest(
        self, search: Search, phrases: Sequence[Phrase], day: int, low: int, high: int, limit: int
    ) -> list[Row]:
        """See ``StoreSession.newest``."""
        return line_search.newest(self.connection, search, phrases, day, low, high, limit)

    def alike(
        self, search: Search, phrases: Sequence[Phrase], day: int, low: int, high: int
    ) -> list[Row]:
        """See ``StoreSession.alike``."""
        return line_search.alike(self.connection, search, phrases, day, low, high)
