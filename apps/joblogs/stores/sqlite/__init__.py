"""Log store in one SQLite file: no server, many processes."""

from apps.joblogs.stores.sqlite.store import SqliteLogStore

__all__ = ["SqliteLogStore"]
