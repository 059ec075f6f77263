"""Django's backend for PostgreSQL, which empties tables quickly between tests."""
