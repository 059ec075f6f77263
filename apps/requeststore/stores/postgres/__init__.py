"""Requests in PostgreSQL: a schema for each database, a table for each collection."""

from apps.requeststore.stores.postgres.node import PostgresNode

__all__ = ["PostgresNode"]
