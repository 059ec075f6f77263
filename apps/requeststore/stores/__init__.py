"""Storage nodes: one interface with adapters for SQLite, PostgreSQL and MongoDB."""
