"""Seed store in PostgreSQL, shared by any number of processes."""

from apps.seeds.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
