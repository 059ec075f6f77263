"""Log lines in a schema of their own of a PostgreSQL database."""

from apps.joblogs.stores.postgres.store import PostgresLogStore

__all__ = ["PostgresLogStore"]
