"""Seeds in RocksDB: a folder that one process owns."""

from apps.seeds.stores.rocks.store import RocksStore

__all__ = ["RocksStore"]
