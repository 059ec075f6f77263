"""Quiet hours, during which notifications are deferred."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Final
from zoneinfo import ZoneInfo

DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


@dataclass(frozen=True, slots=True)
class QuietHours:
    """Quiet hours from ``begin`` to ``end`` in ``time_zone``, on ``days`` (0: Monday).

    An ``end`` not after ``begin`` is on the next day; ``days`` refer to the beginning. In an hour
    that daylight saving time skips or repeats, quiet hours take the longer interpretation.
    Severities in ``excepted`` are sent at any time.
    """

    begin: time
    end: time
    days: frozenset[int] = frozenset(range(7))
    time_zone: str = "UTC"
    excepted: frozenset[str] = frozenset()

    def until(self, now: datetime, severity: str) -> datetime | None:
        """Return the end of the current quiet hours in UTC; None outside of them."""
        if severity in self.excepted:
            return None
        until: datetime | None = None
        # Adjacent spans count as one, for example whole days.
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
    """Return the instants at which clocks show this time: two in a repeated hour."""
    shown = datetime.combine(day, clock, zone)
    return [shown.replace(fold=fold).astimezone(UTC) for fold in (0, 1)]
