"""SQLite in memory, shared by the threads of a test: each thread closes its own connection.

Django's backend leaves one open, because the database goes with its last connection. The thread
that made the database, pytest's own, keeps it here; of others Python 3.13 warns when their
connections are collected unclosed.
"""

from __future__ import annotations

import threading


def pytest_configure() -> None:
    """Close what a thread other than pytest's has opened."""
    try:
        from django.db.backends.base.base import BaseDatabaseWrapper
        from django.db.backends.sqlite3.base import DatabaseWrapper
    except ImportError:
        return
    inner = DatabaseWrapper.close

    def close(self: DatabaseWrapper) -> None:
        if self._thread_ident == threading.main_thread().ident:
            inner(self)
        else:
            BaseDatabaseWrapper.close(self)

    DatabaseWrapper.close = close  # type: ignore[method-assign]
