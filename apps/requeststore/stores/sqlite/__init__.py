"""Requests in a folder of SQLite files, for one machine: no server, many processes."""

from apps.requeststore.stores.sqlite.node import SqliteNode

__all__ = ["SqliteNode"]
