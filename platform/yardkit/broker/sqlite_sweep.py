"""Periodic housekeeping of a broker file by any live process, about once a second.

Each part reads first and writes only if needed, so an idle broker costs little.
"""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

from yardkit.broker.base import DEAD_QUEUE
from yardkit.broker.deadletters import EXPIRED
from yardkit.broker.sqlite_records import dead_letter_envelope
from yardkit.broker.sqlite_routes import Topology
from yardkit.broker.sqlite_schema import side_folder
from yardkit.broker.sqlite_sessions import find_dead, remove_files
from yardkit.broker.sqlite_tables import (
    drop_unused_queues,
    remove_garbage,
    remove_session,
    when_free,
)

_EXPIRED_PER_STEP = 1000
# Free pages are used again anyway; only a file that is mostly empty is made smaller, in small steps
# that block no one.
_VACUUM_FREE_PAGES = 2048
_VACUUM_STEP_PAGES = 1000
# A busy queue fills and empties within seconds: only what stays empty is given back.
_VACUUM_AFTER_SWEEPS = 4


class FileReplaced(OSError):
    """The broker file was deleted or replaced while it was open."""


class Sweeper:
    """Expire messages and queues, reap dead sessions, shrink the file."""

    def __init__(self, connection: sqlite3.Connection, file: Path, session_id: int) -> None:
        self._connection = connection
        self._file = file
        self._session_id = session_id
        self._identity = _identity(file)
        self._calm_sweeps = 0

    def sweep(self, topology: Topology, now: float) -> tuple[set[int], bool]:
        """Run one round; return the changed queues, and whether to run again at once.

        Raises:
            FileReplaced: the open file is no longer the one at the path.
        """
        if _identity(self._file) != self._identity:
            raise FileReplaced(f"{self._file} was deleted or replaced")
        news, more = self._expire_messages(topology, now)
        news |= self.reap(now)
        drop_unused_queues(self._connection, now)
        more |= remove_garbage(self._connection)
        if not more:
            self._vacuum()
        return news, more

    def reap(self, now: float) -> set[int]:
        """Requeue unacknowledged messages of dead processes; return the queues."""
        news: set[int] = set()
        folder = side_folder(self._file)
        for session_id in find_dead(self._connection, folder, self._session_id):
            removed = remove_session(self._connection, session_id, now)
            if removed is not None:
                token, address, queue_ids = removed
                remove_files(folder, token, address)
                news |= queue_ids
        return news

    def _expire_messages(self, topology: Topology, now: float) -> tuple[set[int], bool]:
        rows = self._connection.execute(
            "SELECT ready.id, queue_id, rank, envelope FROM ready JOIN message USING (id)"
            " WHERE expires_at <= ? ORDER BY expires_at LIMIT ?",
            (now, _EXPIRED_PER_STEP),
        ).fetchall()
        if not rows:
            return set(), False
        died_at = time.time()
        news: set[int] = set()
        expiring: list[tuple[int, int, int, bytes | None]] = []
        for id_, queue_id, rank, envelope in rows:
            queue = topology.by_id.get(queue_id)
            dead: bytes | None = None
            if queue is not None and queue.spec.dead_letter:
                news.add(topology.queues[DEAD_QUEUE].id)
                dead = dead_letter_envelope(
                    envelope, reason=EXPIRED, queue=queue.spec.name, died_at=died_at
                )
            expiring.append((id_, queue_id, rank, dead))
        self._connection.executemany("INSERT INTO expiring VALUES (?, ?, ?, ?)", expiring)
        when_free(lambda: self._connection.execute("INSERT INTO expire VALUES (0)"))
        return news, len(rows) == _EXPIRED_PER_STEP

    def _vacuum(self) -> None:
        (free,) = self._connection.execute("PRAGMA freelist_count").fetchone()
        (pages,) = self._connection.execute("PRAGMA page_count").fetchone()
        if free < _VACUUM_FREE_PAGES or free * 2 < pages:
            self._calm_sweeps = 0
            return
        self._calm_sweeps += 1
        if self._calm_sweeps >= _VACUUM_AFTER_SWEEPS:
            # Each step of this statement frees one page, and only a script is run to its end.
            when_free(
                lambda: self._connection.executescript(
                    f"PRAGMA incremental_vacuum({_VACUUM_STEP_PAGES})"
                )
            )


def _identity(file: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_dev, status.st_ino
