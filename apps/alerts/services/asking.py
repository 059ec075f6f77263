"""Asks sources of events and conditions, none of which may silence the others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from django.db import transaction

from apps.alerts.engine.events import More, NotKnown
from apps.runtime.errors import DATABASE_AWAY
from yardkit.broker import BrokerError
from yardkit.errors import first_line

logger = logging.getLogger(__name__)

T = TypeVar("T")
SERVER_AWAY: Final = (OSError, BrokerError)


class Asker:
    """Knows which sources cannot be asked at the moment, and says so once."""

    def __init__(self) -> None:
        self.failing: set[str] = set()
        # Sources that had more to tell at the last look than they tell at once.
        self.cut: set[str] = set()

    def ask(self, name: str, question: Callable[[], Iterable[T]]) -> list[T] | None:
        """All answers; None: the source has failed, so nothing is known.

        Raises ``OperationalError`` and ``InterfaceError``: the database is away, for everybody.
        """
        found: list[T] = []
        try:
            # In a savepoint: a question that fails must not spoil what is asked next.
            with transaction.atomic():
                try:
                    for each in question():
                        found.append(each)
                    self.cut.discard(name)
                except More:
                    self.cut.add(name)
                except NotKnown:
                    # What it has noted stays, such as since when somebody has watched.
                    return None
        except DATABASE_AWAY:
            raise
        except Exception as error:
            # Any defect of one source: the others are still read.
            if name not in self.failing:
                # A server away needs no traceback.
                defect = None if isinstance(error, SERVER_AWAY) else error
                logger.error("source %s fails: %s", name, first_line(error), exc_info=defect)
            self.failing.add(name)
            return None
        if name in self.failing:
            logger.info("source %s works again", name)
        self.failing.discard(name)
        return found
