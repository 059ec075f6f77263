"""Storage nodes: one port, an adapter each for SQL and MongoDB."""
