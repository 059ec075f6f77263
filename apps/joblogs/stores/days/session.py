"""Database session of a SQL log store.

Statements have ``?`` where a value goes, and no other question mark or percent sign.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import date
from typing import Any, ClassVar, Final

from apps.joblogs.engine.words import Phrase
from apps.joblogs.stores.base import Search

Row = tuple[Any, ...]

# The id of a line: microseconds of the day above, a number below that no other line of the same
# microsecond has. So lines are found by time as they are by id.
SHIFT: Final = 26
MASK: Final = (1 << SHIFT) - 1
_EPOCH: Final = date(1970, 1, 1).toordinal()


def table(day: int) -> str:
    """The end of the names of a day's tables: 20261121."""
    return f"{date.fromordinal(_EPOCH + day):%Y%m%d}"


class StoreSession(ABC):
    """A transaction of an engine."""

    # Ends a SELECT of lines that are then deleted.
    FOR_UPDATE: ClassVar[str] = ""

    @abstractmethod
    def all(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Return all rows of a query."""

    @abstractmethod
    def execute(self, sql: str, values: Sequence[Any] = ()) -> None:
        """A statement that finds nothing."""

    @abstractmethod
    def many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Execute the statement once for each of these values."""

    @abstractmethod
    def containing(self, wanted: str) -> tuple[str, str]:
        """A condition on the column ``text``, case aside, and its value."""

    @abstractmethod
    def lock_day(self, day: int) -> None:
        """Keep other transactions from adding lines to the day until this one ends."""

    @abstractmethod
    def drop_tables(self, day: int) -> None:
        """Drop the tables of a day."""

    @abstractmethod
    def forget(self, day: int, project: int, job: int, rows: Sequence[Row]) -> None:
        """Delete lines: (id, text, execution, level), ids rising."""

    @abstractmethod
    def newest(
        self, search: Search, phrases: Sequence[Phrase], day: int, low: int, high: int, limit: int
    ) -> list[Row]:
        """Lines of the day as ``search.COLUMNS`` says, with ids from ``low`` to below ``high``,
        the highest first."""

    @abstractmethod
    def alike(
        self, search: Search, phrases: Sequence[Phrase], day: int, low: int, high: int
    ) -> list[Row]:
        """Errors of the day: (fingerprint, execution, lines, lowest id, highest id)."""
