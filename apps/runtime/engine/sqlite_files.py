"""SQLite files of stores that do not use Django's connections."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

BUSY_SECONDS: Final = 20.0


def make_folder(folder: Path) -> None:
    """Create the folder and its parents. Raises ``OSError`` also if the folder is not writable."""
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise PermissionError(13, "Permission denied")


def when_free(attempt: Callable[[], T], seconds: float) -> T:
    """Retry ``attempt`` with jitter while the file is locked.

    Raises the errors of ``attempt``, and ``sqlite3.OperationalError`` after ``seconds``.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return attempt()
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() > deadline:
                raise
            time.sleep(random.uniform(0.0005, 0.004))  # noqa: S311 - no secret


def read(connection: sqlite3.Connection, work: Work[T], seconds: float) -> T:
    """Call ``work`` in a read transaction with a consistent snapshot; it may be called again."""

    def look() -> T:
        connection.execute("BEGIN")
        try:
            return work(connection)
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    # Readers never wait for writers, only for a process that recovers the file after a crash.
    return when_free(look, seconds)


def write(connection: sqlite3.Connection, work: Work[T], seconds: float) -> T:
    """Call ``work`` in a write transaction and commit when it returns."""
    when_free(lambda: connection.execute("BEGIN IMMEDIATE"), seconds)
    try:
        answer = work(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
        raise
    return answer


def said(error: sqlite3.Error) -> str:
    """Describe the SQLite error in words."""
    code: int = getattr(error, "sqlite_errorcode", 0) & 0xFF
    reasons = {
        sqlite3.SQLITE_FULL: "the disk is full",
        sqlite3.SQLITE_BUSY: "others have been writing all the time",
        sqlite3.SQLITE_NOTADB: "this is no SQLite database",
        sqlite3.SQLITE_READONLY: "it cannot be written",
        sqlite3.SQLITE_CANTOPEN: "it cannot be opened",
    }
    return reasons.get(code) or str(error)
