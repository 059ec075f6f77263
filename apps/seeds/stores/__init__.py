"""Where seeds live: one port, RocksDB and PostgreSQL behind it. Plain Python."""
