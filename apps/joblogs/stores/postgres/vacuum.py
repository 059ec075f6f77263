"""Vacuum of tables that fill within minutes, too fast for autovacuum."""

from __future__ import annotations

from typing import Final

from apps.joblogs.stores.days.session import table
from apps.joblogs.stores.postgres.schema import SCHEMA
from apps.runtime.engine.postgres_pool import Cursor

_PAGE: Final = 8192
# Tables of days that have doubled since the last ANALYZE, and grown by at least 8 MB.
_UNKNOWN: Final = """
    SELECT relname FROM pg_class
    WHERE relnamespace = %s::regnamespace AND relkind = 'r' AND relname LIKE 'lines_%%'
      AND pg_relation_size(oid) > %s + 2 * %s::bigint * greatest(relpages, 0)
"""


def tidy(cursor: Cursor) -> None:
    """Analyze tables that have grown, for the planner, and flush the pending list of the GIN index,
    which every search has to scan.
    """
    for (name,) in cursor.execute(_UNKNOWN, (SCHEMA, 8 * 1024 * 1024, _PAGE)).fetchall():
        cursor.execute(f"ANALYZE (SKIP_LOCKED) {name}")
    # Locked, so that no table is dropped meanwhile.
    days = cursor.execute("SELECT day FROM days ORDER BY day FOR SHARE SKIP LOCKED").fetchall()
    for (day,) in days:
        cursor.execute("SELECT gin_clean_pending_list(%s)", (f"lines_{table(day)}_words",))
