"""Hours in which nobody is told of what can wait."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Final
from zoneinfo import ZoneInfo

DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


@dataclass(frozen=True, slots=True)
class QuietHours:
    """From ``begin`` to ``end`` by the clocks of ``time_zone``, on ``days`` (0: Monday).

    An ``end`` that is not after ``begin`` is on the next day; the day is that of the beginning. In
    the hour that clocks skip or repeat it is quiet where that is in doubt.
    Severities of ``excepted`` are told at any time.
    """

    begin: time
    end: time
    days: frozenset[int] = frozenset(range(7))
    time_zone: str = "UTC"
    excepted: frozenset[str] = frozenset()

    def until(self, now: datetime, severity: str) -> datetime | None:
        """When the quiet that ``now`` lies in is over, in UTC; None: it is not quiet."""
        if severity in self.excepted:
            return None
        until: datetime | None = None
        # Spans may touch each other, as whole days do.
        for _span in range(len(DAYS) + 1):
            over = self._span_end(until or now)
            if over is None:
                break
            until = over
        return until

    def _span_end(self, now: datetime) -> datetime | None:
        zone = ZoneInfo(self.time_zone)
        today = now.astimezone(zone).date()
        for day in (today, today - timedelta(days=1)):
            if day.weekday() not in self.days:
                continue
            begin = min(_instants(day, self.begin, zone))
            last = day if self.end > self.begin else day + timedelta(days=1)
            end = max(_instants(last, self.end, zone))
            if begin <= now < end:
                return end
        return None


def _instants(day: date, clock: time, zone: ZoneInfo) -> list[datetime]:
    """When the clocks show this: twice in an hour that is repeated."""
    shown = datetime.combine(day, clock, zone)
    return [shown.replace(fold=fold).astimezone(UTC) for fold in (0, 1)]
