"""Seed store in RocksDB: a folder owned by one process."""

from apps.seeds.stores.rocks.store import RocksStore

__all__ = ["RocksStore"]
