"""Scaling of the fetchers of one box by demand: `up --scale`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from django.db import connection

from apps.requeststore.services.scale_advice import wanted_fetchers
from apps.runtime.errors import DATABASE_ERRORS
from apps.runtime.queries import live_daemons
from crawlyard.supervisor import Supervisor
from crawlyard.units import fetcher, fetcher_name

logger = logging.getLogger(__name__)

ASK_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class FetcherDemand:
    """``running``: names of fetchers on all hosts. ``most``: FETCHERS_MAX."""

    running: frozenset[str]
    wanted: int
    most: int
    why: str


class FetcherScale:
    """Start and stop fetchers beside the first one, which always runs.

    A thread queries the database, so that a slow one delays no log and no restart. Fetchers on
    other hosts count, too.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        write_line: Callable[[str], None],
        ask: Callable[[], FetcherDemand] | None = None,
        every: float = ASK_SECONDS,
    ) -> None:
        self._supervisor = supervisor
        self._write_line = write_line
        self._ask = ask or _from_database
        self._every = every
        self._stopped = threading.Event()
        self._answer: FetcherDemand | None = None
        # Numbers of this box's fetchers, the first one included.
        self._numbers = [1]
        self._thread = threading.Thread(target=self._run, name="fetcher-scale", daemon=True)

    @property
    def numbers(self) -> list[int]:
        """Return the numbers of this box's fetchers, in the order of their start."""
        return list(self._numbers)

    def start(self) -> None:
        """Start the querying thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop querying, without waiting."""
        self._stopped.set()

    def step(self) -> None:
        """Apply a new answer, if there is one. For the supervisor's thread only."""
        answer, self._answer = self._answer, None
        if answer is None:
            return
        # By name: new fetchers have no heartbeat yet, and ending ones still have one.
        own = {fetcher_name(number) for number in range(1, answer.most + 1)}
        elsewhere = len(answer.running - own)
        local = max(1, min(answer.most, answer.wanted - elsewhere))
        if local == len(self._numbers):
            return
        self._write_line(
            f"fetchers: {len(self._numbers)} here, {local} wanted here ({answer.wanted} in all): "
            f"{answer.why}"
        )
        while len(self._numbers) < local:
            number = min(set(range(1, local + 1)) - set(self._numbers))
            self._numbers.append(number)
            self._supervisor.add(fetcher(number))
        while len(self._numbers) > local:
            # The youngest stops first, after finishing its work.
            self._supervisor.retire(fetcher(self._numbers.pop()).name)

    def _run(self) -> None:
        failing = False
        while not self._stopped.wait(self._every):
            try:
                self._answer = self._ask()
                failing = False
            except DATABASE_ERRORS as error:
                if not failing:
                    logger.warning("how many fetchers are wanted is not known: %s", error)
                failing = True


def _from_database() -> FetcherDemand:
    try:
        advice = wanted_fetchers()
        names = frozenset(live_daemons(kind="fetcher").values_list("name", flat=True))
    finally:
        # No connection is needed between two queries.
        connection.close()
    needy = [biz for biz in advice.bizzes if biz.needed == advice.needed]
    why = f"{needy[0].project_name}/{needy[0].biz} {needy[0].reason}" if needy else "nothing waits"
    return FetcherDemand(names, advice.wanted, advice.most, why)
