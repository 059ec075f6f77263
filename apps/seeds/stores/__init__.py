"""Seed stores: one interface with adapters for RocksDB and PostgreSQL. No Django."""
