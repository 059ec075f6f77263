"""The peer of the bench of logs: finished rows, copied into the same tables and indexes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

from django.conf import settings

from apps.joblogs.engine.words import spaced
from apps.joblogs.stores.days.session import table
from apps.joblogs.stores.postgres.pool import LogPool
from apps.joblogs.stores.postgres.schema import of_day as postgres_day
from apps.joblogs.stores.postgres.store import PostgresLogStore
from apps.joblogs.stores.sqlite.database import LogFile
from apps.joblogs.stores.sqlite.schema import of_day as sqlite_day
from apps.joblogs.stores.sqlite.schema import tags_of
from apps.joblogs.stores.sqlite.store import SqliteLogStore
from apps.runtime.engine.postgres_pool import Cursor


class Rows(NamedTuple):
    """What was stored since the last time: by day, as the peer writes it."""

    lines: int
    days: list[tuple[int, Any]]


class Peer(Protocol):
    """Copies rows from the store of the settings into one beside it."""

    def read(self) -> Rows:
        """Those that are new."""

    def write(self, rows: Rows) -> None:
        """In one transaction."""

    def close(self) -> None:
        """Let go of both."""


def open_peer(url: str) -> Peer:
    """``url``: of an empty store of the same kind as that of the settings."""
    return _Sqlite(url) if url.startswith("sqlite:") else _Postgres(url)


class _Sqlite:
    def __init__(self, url: str) -> None:
        folder = Path(unquote(urlsplit(url).path))
        SqliteLogStore(folder).setup()
        self._to = LogFile(folder, sync=False)
        self._from = LogFile(Path(unquote(urlsplit(settings.LOGS_URL).path)), sync=False)
        self._last: dict[int, int] = {}

    def read(self) -> Rows:
        """See ``Peer.read``."""

        def work(connection: Any) -> Rows:
            found = []
            for (day,) in connection.execute("SELECT day FROM days").fetchall():
                rows = connection.execute(
                    "SELECT l.id, l.execution, l.seq, l.level, l.source, l.text, l.fingerprint,"  # noqa: S608 - a name of our own
                    f" e.project, e.job FROM lines_{table(day)} l"
                    " CROSS JOIN executions e ON e.id = l.execution WHERE l.id > ? ORDER BY l.id",
                    (self._last.get(day, -1),),
                ).fetchall()
                if rows:
                    self._last[day] = rows[-1][0]
                words = [
                    (row[0], spaced(row[5]), tags_of(row[7], row[8], row[1], row[3]))
                    for row in rows
                ]
                found.append((day, ([row[:7] for row in rows], words)))
            return Rows(sum(len(one[1][0]) for one in found), found)

        return self._from.reading(work)

    def write(self, rows: Rows) -> None:
        """See ``Peer.write``."""

        def work(connection: Any) -> None:
            known = {day for (day,) in connection.execute("SELECT day FROM days").fetchall()}
            for day, (lines, words) in rows.days:
                if day not in known:
                    for statement in sqlite_day(day):
                        connection.execute(statement)
                    connection.execute("INSERT INTO days VALUES (?, 0, 1)", (day,))
                name = table(day)
                connection.executemany(f"INSERT INTO lines_{name} VALUES (?,?,?,?,?,?,?)", lines)  # noqa: S608 - a name of our own
                connection.executemany(
                    f"INSERT INTO words_{name} (rowid, words, tags) VALUES (?, ?, ?)",  # noqa: S608 - a name of our own
                    words,
                )

        self._to.writing(work)

    def close(self) -> None:
        """See ``Peer.close``."""
        self._to.close()
        self._from.close()


class _Postgres:
    def __init__(self, url: str) -> None:
        store = PostgresLogStore(url)
        store.setup()
        store.close()
        self._to, self._from = LogPool(url), LogPool(settings.LOGS_URL)
        self._last: dict[int, int] = {}
        self._known: set[int] = set()

    def read(self) -> Rows:
        """See ``Peer.read``."""

        def work(cursor: Cursor) -> Rows:
            found, count = [], 0
            for (day,) in cursor.execute("SELECT day FROM days").fetchall():
                name, last = table(day), self._last.get(day, -1)
                after = f"FROM lines_{name} WHERE id > {last}"
                ((new, highest),) = cursor.execute(f"SELECT count(*), max(id) {after}").fetchall()
                if new:
                    self._last[day] = highest
                    with cursor.copy(f"COPY (SELECT * {after} ORDER BY id) TO STDOUT") as copy:
                        found.append((day, b"".join(bytes(block) for block in copy)))
                    count += new
            return Rows(count, found)

        return self._from.run(work, reading=True)

    def write(self, rows: Rows) -> None:
        """See ``Peer.write``."""

        def work(cursor: Cursor) -> None:
            for day, block in rows.days:
                if day not in self._known:
                    cursor.execute(postgres_day(day))
                    self._known.add(day)
                with cursor.copy(f"COPY lines_{table(day)} FROM STDIN") as copy:
                    copy.write(block)

        self._to.run(work)

    def close(self) -> None:
        """See ``Peer.close``."""
        self._to.close()
        self._from.close()
