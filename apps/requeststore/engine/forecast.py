"""Forecast of a biz's backlog: when it is done, whether in time, and the fetchers needed.

eta = backlog / (processed - created), by rates over five minutes to suppress noise.

Each waiting request is due ``planned_seconds`` after its arrival. Requests that arrived while the
rates were measured are assumed to have arrived evenly, the rest together with the oldest:

first = backlog - created * age of the oldest, due at the deadline of the oldest
all = backlog, due within the planned time from now
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import Final

# Minimum period (seconds) of meaningful rates.
LEAST_SECONDS: Final = 60
# A backlog of up to this many seconds of work counts as none: some requests are always leased.
NO_BACKLOG_SECONDS: Final = 10.0
NO_BACKLOG: Final = 10
# Late requests are to be done within this part of the planned time, and at least this many
# seconds.
CATCH_UP: Final = 0.1
CATCH_UP_SECONDS: Final = 300.0
# Relative difference below which two rates count as equal.
NOISE: Final = 0.02
# A need exceeding a whole number of fetchers by less than this is rounded down.
SPARE: Final = 0.1
# Maximum utilization of a fetcher without a backlog.
USE: Final = 0.8
# Age (seconds) from which reports of the store are stale.
STALE_SECONDS: Final = 60.0
MOST_NEEDED: Final = 1_000_000


class Outlook(enum.StrEnum):
    """Development of a backlog."""

    EMPTY = "empty"
    UNKNOWN = "unknown"
    # The last report of the store is stale.
    STALE = "stale"
    KEEPS_PACE = "keeps_pace"
    DONE = "done"
    NEVER = "never"
    # Requests wait and none is processed.
    STANDS = "stands"


class Lateness(enum.StrEnum):
    """Which requests miss their deadline at this rate."""

    NONE = ""
    # The oldest request has missed its deadline.
    OLDEST = "oldest"
    # The backlog is not done by the deadline of the oldest request.
    BACKLOG = "backlog"
    # New requests wait longer than planned.
    NEW = "new"


@dataclass(frozen=True, slots=True)
class BacklogMeasurements:
    """Measurements of one biz. Rates are per second, means over ``seconds`` seconds; None:
    unknown.

    ``backlog``: new and leased requests. ``fetchers``: mean number in these seconds; ``running``:
    now. ``capacity``: requests per second of one fetcher under load, as measured before.
    ``report_age``: age of ``backlog`` in seconds.
    """

    backlog: int
    created: float | None
    processed: float | None
    seconds: float
    planned_seconds: float
    oldest_age: float | None = None
    report_age: float = 0.0
    fetchers: float = 0.0
    running: int = 0
    capacity: float | None = None


@dataclass(frozen=True, slots=True)
class Forecast:
    """Result.

    ``eta_seconds``: until the backlog is empty, with ``DONE``. ``deadline_seconds``: until the
    deadline of the oldest request, negative when missed. ``wait_seconds``: of a request that
    arrives now. ``needed``: fetchers to be in time. ``capacity``: of one fetcher, measured now or
    before.
    """

    outlook: Outlook
    lateness: Lateness = Lateness.NONE
    eta_seconds: float | None = None
    deadline_seconds: float | None = None
    wait_seconds: float | None = None
    needed: int = 1
    capacity: float | None = None
    # Whether ``capacity`` was measured now: there was a backlog all the time.
    measured: bool = False


def forecast(facts: BacklogMeasurements) -> Forecast:
    """Return the forecast and the number of fetchers needed."""
    running = max(1, facts.running)
    if facts.report_age > STALE_SECONDS:
        return Forecast(Outlook.STALE, needed=running, capacity=facts.capacity)
    created, processed = facts.created, facts.processed
    if created is None or processed is None or facts.seconds < LEAST_SECONDS:
        outlook = Outlook.UNKNOWN if facts.backlog else Outlook.EMPTY
        return Forecast(outlook, needed=running, capacity=facts.capacity)
    if not _is_backlog(facts.backlog, processed):
        needed = _for_pace(facts, created, running)
        outlook = Outlook.KEEPS_PACE if facts.backlog and processed else Outlook.EMPTY
        if facts.backlog and not processed:
            outlook = Outlook.STANDS
        return Forecast(outlook, needed=needed, capacity=facts.capacity)
    return _of_backlog(facts, created, processed, running)


def _is_backlog(backlog: int, processed: float) -> bool:
    return backlog > max(NO_BACKLOG, processed * NO_BACKLOG_SECONDS)


def _for_pace(facts: BacklogMeasurements, created: float, running: int) -> int:
    """Return the fetchers that keep up with arrivals; one less where no backlog was measured."""
    if facts.capacity:
        return _fetchers(created / (USE * facts.capacity))
    # Probe whether one less is enough; only after a period without backlog.
    return max(1, running - 1)


def _of_backlog(
    facts: BacklogMeasurements, created: float, processed: float, running: int
) -> Forecast:
    measured = processed > 0 and facts.fetchers >= 0.5
    capacity = processed / facts.fetchers if measured else facts.capacity
    deadline = None if facts.oldest_age is None else facts.planned_seconds - facts.oldest_age
    wait = facts.backlog / processed if processed else None
    pace, lateness = _pace(facts, created, processed, deadline)
    net = processed - created
    eta = None
    if not processed:
        outlook = Outlook.STANDS
        # Nothing is processed, so that all other requests are late as well: not reported.
        lateness = lateness if lateness is Lateness.OLDEST else Lateness.NONE
    elif net <= NOISE * max(processed, created):
        outlook = Outlook.NEVER
    else:
        outlook, eta = Outlook.DONE, facts.backlog / net
    # Without a measured capacity, the effect of more fetchers is unknown.
    needed = _fetchers(pace / capacity) if capacity else running
    return Forecast(outlook, lateness, eta, deadline, wait, needed, capacity, measured)


def _pace(
    facts: BacklogMeasurements, created: float, processed: float, deadline: float | None
) -> tuple[float, Lateness]:
    """Return the rate needed to be in time, and what is late at the present rate."""
    planned = max(1.0, facts.planned_seconds)
    lateness = Lateness.NONE
    pace = max(created, facts.backlog / planned)
    if processed < facts.backlog / planned:
        lateness = Lateness.NEW
    if deadline is not None and facts.oldest_age is not None:
        first = max(0.0, facts.backlog - created * facts.oldest_age)
        if deadline <= 0:
            lateness = Lateness.OLDEST
            soon = max(CATCH_UP_SECONDS, planned * CATCH_UP)
            pace = max(pace, created + facts.backlog / soon)
        else:
            pace = max(pace, first / deadline)
            if processed * deadline < first:
                lateness = Lateness.BACKLOG
    return pace, lateness


def _fetchers(exact: float) -> int:
    return max(1, min(MOST_NEEDED, math.ceil(exact - SPARE)))


def settled(needs: list[tuple[float, int]], need: int, *, now: float, seconds: float) -> int:
    """Return the highest need of the last ``seconds``, which delays scaling down.

    Updates ``needs``, a list of (time, need), oldest first.
    """
    needs[:] = [(at, need) for at, need in needs if now - seconds < at <= now]
    # Of a series of equal values the first and the last are kept.
    if len(needs) > 1 and needs[-1][1] == needs[-2][1] == need:
        needs.pop()
    needs.append((now, need))
    return max(need for _at, need in needs)
