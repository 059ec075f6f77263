"""Log store in a schema of its own in a PostgreSQL database."""

from apps.joblogs.stores.postgres.store import PostgresLogStore

__all__ = ["PostgresLogStore"]
