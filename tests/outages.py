"""A database that is away for a while, as far as a part of the platform can tell."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection


@contextmanager
def tables_away(*tables: str) -> Iterator[None]:
    """Every statement about these fails, as on a server that is not there."""
    with connection.cursor() as cursor:
        for table in tables:
            cursor.execute(f"ALTER TABLE {table} RENAME TO {table}_away")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            for table in tables:
                cursor.execute(f"ALTER TABLE {table}_away RENAME TO {table}")
