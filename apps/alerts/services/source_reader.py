"""Reads event and condition sources, isolating the failure of one from the others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from django.db import transaction

from apps.alerts.engine.events import StateUnknown, Truncated
from apps.runtime.errors import DATABASE_AWAY
from yardkit.broker import BrokerError
from yardkit.errors import first_line
from yardkit.outage import Outage

logger = logging.getLogger(__name__)

T = TypeVar("T")
CONNECTION_ERRORS: Final = (OSError, BrokerError)


class FailureLog:
    """Outages by name, logged when they begin and end; a defect is logged with traceback."""

    def __init__(self) -> None:
        self._outages: dict[str, Outage] = {}

    @property
    def failing(self) -> set[str]:
        """Return the names whose latest try has failed."""
        return {name for name, outage in self._outages.items() if outage.lasting}

    def failed(self, name: str, error: Exception) -> None:
        """Note a failed try."""
        outage = self._outages.setdefault(name, Outage(logger, name))
        if not outage.lasting and not isinstance(error, CONNECTION_ERRORS):
            logger.error("defect in %s: %s", name, first_line(error), exc_info=error)
        outage.failed(error)

    def recovered(self, name: str) -> None:
        """Note a successful try."""
        if name in self._outages:
            self._outages.pop(name).recovered()


class SourceReader:
    """Reads sources, remembers which fail, and logs the start and end of each failure once."""

    def __init__(self) -> None:
        self._failures = FailureLog()
        # Sources whose latest result was truncated.
        self.cut: set[str] = set()

    @property
    def failing(self) -> set[str]:
        """Return the names of sources that cannot be read now."""
        return self._failures.failing

    def read(self, name: str, query: Callable[[], Iterable[T]]) -> list[T] | None:
        """Return all results of ``query``; None if the source failed, so that nothing is known.

        Raises ``OperationalError`` and ``InterfaceError``: an unavailable database concerns all
        sources.
        """
        results: list[T] = []
        try:
            # Runs in a savepoint: a failed query must not abort the transaction of the next one.
            with transaction.atomic():
                try:
                    for result in query():
                        results.append(result)
                    self.cut.discard(name)
                except Truncated:
                    self.cut.add(name)
                except StateUnknown:
                    # Rows that the source wrote, such as the start of its observation, are kept.
                    return None
        except DATABASE_AWAY:
            raise
        except Exception as error:  # noqa: BLE001 - logged by ``FailureLog``
            # One defective source must not stop the others.
            self._failures.failed(name, error)
            return None
        self._failures.recovered(name)
        return results
