"""Requests in a folder of SQLite files, for one host with many processes."""

from apps.requeststore.stores.sqlite.node import SqliteNode

__all__ = ["SqliteNode"]
