"""What Django looks for in a database backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.backends.postgresql import base
from django.db.backends.postgresql.operations import DatabaseOperations as PostgresOperations


class DatabaseOperations(PostgresOperations):
    """Deletes rows: ``TRUNCATE`` makes new files for sixty tables and all of their indexes."""

    def sql_flush(
        self, style: Any, tables: Sequence[str], *, reset_sequences: bool = False, **options: Any
    ) -> list[str]:
        """Its foreign keys are all checked at the end, so the order of the tables is free."""
        if reset_sequences:
            return super().sql_flush(style, tables, reset_sequences=True, **options)
        return [f"DELETE FROM {self.quote_name(table)};" for table in tables]  # noqa: S608 - ours


class DatabaseWrapper(base.DatabaseWrapper):
    """As Django's."""

    ops_class = DatabaseOperations
