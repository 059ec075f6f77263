"""Age of records.

Record APIs write dates in many ways; an unreadable date never counts as too old.
"""

from __future__ import annotations

import enum
import re
import zoneinfo
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Any, Final

from apps.sources.engine.paths import find
from apps.sources.engine.settings import Source

# Unix seconds have ten digits until the year 2286, milliseconds thirteen.
_MS_FROM: Final = 100_000_000_000
_EPOCH: Final = re.compile(r"-?\d{9,14}(\.\d+)?")
_CHINESE: Final = re.compile(
    r"(\d{4})\s*年\s*(\d{1,2})\s*月\s*(\d{1,2})\s*[日号]?\s*(?:(\d{1,2}:\d{2}(?::\d{2})?))?"
)
_NUMBERS: Final = re.compile(
    r"(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})(?:[T\s]+(\d{1,2}:\d{2}(?::\d{2})?)(?:\.\d+)?)?"
)
_NEVER: Final = datetime.max.replace(tzinfo=UTC)


class Age(enum.Enum):
    """Classification of a record by its date."""

    VALID = "valid"
    EXPIRED = "expired"
    # The date is missing or unreadable.
    UNREADABLE = "unreadable"
    FUTURE = "future"


def age_of(record: Any, source: Source, now: datetime) -> Age:
    """Classify a record by ``filter_days``; without ``date_field`` all records are recent."""
    if not source.date_field or not source.filter_days:
        return Age.VALID
    moment = read_date(find(source.date_field, record), source.date_format, source.time_zone)
    if moment is None:
        return Age.UNREADABLE
    if moment > now + timedelta(seconds=source.future_seconds):
        return Age.FUTURE
    return Age.VALID if moment >= now - timedelta(days=source.filter_days) else Age.EXPIRED


def read_date(value: Any, pattern: str = "", time_zone: str = "UTC") -> datetime | None:
    """Parse ISO 8601, 2026/01/08, 2026年1月8日, Unix seconds or ms; None if it is no date.

    A day without a time counts until its end, so that a record of the oldest day is not too old.
    """
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return _from_epoch(float(value))
    if not isinstance(value, str) or not (text := value.strip()) or len(text) > 100:
        return None
    try:
        if pattern:
            return _placed(datetime.strptime(text, pattern), time_zone)  # noqa: DTZ007 - placed
        return _from_text(text, time_zone)
    except (ValueError, OverflowError):
        return None


def _from_text(text: str, time_zone: str) -> datetime | None:
    if _EPOCH.fullmatch(text):
        return _from_epoch(float(text))
    if "T" in text or text.count(":") >= 1:
        try:
            return _placed(datetime.fromisoformat(text), time_zone)
        except ValueError:
            pass
    match = _CHINESE.fullmatch(text) or _NUMBERS.fullmatch(text)
    if match is None:
        return None
    year, month, day, clock = match.groups()
    date = datetime(int(year), int(month), int(day))  # noqa: DTZ001 - placed below
    if clock is None:
        return _placed(date + timedelta(days=1, microseconds=-1), time_zone)
    parts = [int(part) for part in clock.split(":")]
    return _placed(
        date.replace(hour=parts[0], minute=parts[1], second=parts[2] if parts[2:] else 0), time_zone
    )


def _from_epoch(number: float) -> datetime | None:
    seconds = number / 1000 if abs(number) >= _MS_FROM else number
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _placed(moment: datetime, time_zone: str) -> datetime:
    placed = moment if moment.tzinfo is not None else moment.replace(tzinfo=_zone(time_zone))
    try:
        return placed.astimezone(UTC)
    except OverflowError:
        return _NEVER


@lru_cache(maxsize=64)
def _zone(name: str) -> tzinfo:
    return zoneinfo.ZoneInfo(name)
