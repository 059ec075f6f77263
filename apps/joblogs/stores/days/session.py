"""Database session of a SQL log store.

Statements have ``?`` as placeholder, and no other question mark or percent sign.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import date
from typing import Any, ClassVar, Final

from apps.joblogs.engine.words import Phrase
from apps.joblogs.stores.base import Search

Row = tuple[Any, ...]

# The ID of a line: microseconds of the day in the high bits, a counter in the low bits that is
# unique within the microsecond. So a range of IDs is a range of times.
SHIFT: Final = 26
MASK: Final = (1 << SHIFT) - 1
_EPOCH: Final = date(1970, 1, 1).toordinal()


def table(day: int) -> str:
    """Return the suffix of a day's table names, such as 20261121."""
    return f"{date.fromordinal(_EPOCH + day):%Y%m%d}"


class StoreSession(ABC):
    """Transaction of a SQL engine."""

    # Suffix of a SELECT whose rows are then deleted.
    FOR_UPDATE: ClassVar[str] = ""

    @abstractmethod
    def all(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Return all rows of a query."""

    @abstractmethod
    def execute(self, sql: str, values: Sequence[Any] = ()) -> None:
        """Execute a statement without a result."""

    @abstractmethod
    def many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Execute the statement once for each row of values."""

    @abstractmethod
    def containing(self, wanted: str) -> tuple[str, str]:
        """Return a condition for ``text`` containing ``wanted`` (case-insensitive), and its
        value.
        """

    @abstractmethod
    def lock_day(self, day: int) -> None:
        """Block inserts into the day by other transactions until this one ends."""

    @abstractmethod
    def drop_tables(self, day: int) -> None:
        """Drop the tables of a day."""

    @abstractmethod
    def forget(self, day: int, project: int, job: int, rows: Sequence[Row]) -> None:
        """Delete lines given as (id, text, execution, level), ids ascending."""

    @abstractmethod
    def newest(
        self, search: Search, phrases: Sequence[Phrase], day: int, low: int, high: int, limit: int
    ) -> list[Row]:
        """Return the newest matching lines (``search.COLUMNS``) with ids from ``low`` to below
        ``high``, descending.
        """

    @abstractmethod
    def alike(
        self, search: Search, phrases: Sequence[Phrase], day: int, low: int, high: int
    ) -> list[Row]:
        """Count errors of the day: (fingerprint, execution, lines, lowest id, highest id)."""
