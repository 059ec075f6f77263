"""Tables of one shard, and conversion of their rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any, Final

from apps.requeststore.engine.flags import MOVING
from apps.requeststore.stores import story
from apps.requeststore.stores.base import Shard, StoredRequest
from apps.requeststore.stores.guards import LeaseState
from apps.requeststore.stores.sqlite import statements

Row = tuple[Any, ...]
_STORIES: Final = 12


class SqliteShard:
    """Runs statements with the names of one shard."""

    def __init__(self, connection: sqlite3.Connection, shard: Shard) -> None:
        self._connection = connection
        # Validated: a-z, 0-9 and _ only, so a dollar cannot collide.
        name = shard.collection
        self._names = {
            "t": f'"{name}"',
            "d": f'"{name}$data"',
            "flags": f'"{name}$flags"',
            "waiting": f'"{name}$waiting"',
            "taken": f'"{name}$taken"',
        }

    def execute(self, statement: str, values: Any = ()) -> sqlite3.Cursor:
        """Run one statement of ``statements``."""
        return self._connection.execute(statement.format_map(self._names), values)

    def many(self, statement: str, rows: Iterable[Row]) -> None:
        """Run one statement for many rows."""
        self._connection.executemany(statement.format_map(self._names), rows)

    def make(self) -> None:
        """Make tables and indexes unless they exist."""
        for statement in statements.TABLES:
            self.execute(statement)

    def flags(self) -> Iterator[int]:
        """Return the existing flags, each by one index seek."""
        flag: int | None = MOVING - 1
        while True:
            (flag,) = self.execute(statements.FLAGS, (flag,)).fetchone()
            if flag is None:
                return
            yield flag

    def shorten(self) -> None:
        """Cut histories of the staged requests that have become too long."""
        for id_, text in self.execute(statements.LONG, (story.LONG_STORY,)).fetchall():
            shorter = story.shorter(text)
            if shorter is not None:
                self.execute(statements.SHORTEN, (shorter, id_))


def request_of(row: Row, **changed: Any) -> StoredRequest:
    """Convert ``id, mine, state, data``; without ``data`` there are no steps either."""
    whole = len(row) > _STORIES + 1
    values: dict[str, Any] = {
        "id": row[0],
        "biz": row[2],
        "ts": row[3],
        "flag": row[4],
        "priority": row[5],
        "owner": row[6],
        "deadline": row[7],
        "tries": row[8],
        "queued_at": row[9],
        "finished_at": row[10],
        "result": row[11],
        "data": row[13] if whole else b"",
        "steps": story.read(row[_STORIES]) if whole else [],
    }
    return StoredRequest(**(values | changed))


def state_of(row: Row) -> LeaseState:
    """Convert ``id, mine, biz, ts, flag, owner, deadline, tries``."""
    return LeaseState(*row[2:])
