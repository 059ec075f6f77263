"""Segment resolvers: the slice of time that a seed belongs to.

A segment is identified by its beginning in ms since 1970. A key is unique within a segment, and may
occur again in the next one: the same URL is crawled once a day, a week, ...
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from apps.seeds.engine.errors import InvalidFrontierSetting
from apps.seeds.engine.extensions import load_extension
from apps.seeds.engine.seeds import DEFAULT_SEGMENT

GROUP: Final = "crawlyard.segments"
DEFAULT: Final = "day"
MAX_DAYS: Final = 3660
_DAYS = re.compile(r"days:([1-9][0-9]{0,3})")
_FIRST_DAY: Final = datetime(1970, 1, 1).toordinal()  # noqa: DTZ001 - a calendar's day, of no zone

# Computes the beginning of the segment of a time, both in ms since 1970.
SegmentResolver = Callable[[int], int]
# Computes the local beginning of the segment of a local time.
_Floor = Callable[[datetime], datetime]


def time_zone(name: str) -> ZoneInfo:
    """Return the zone. Raises ``InvalidFrontierSetting`` if it is not in the tz database."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidFrontierSetting(f"there is no time zone {name!r}") from None


def segment_text(segment: int) -> str:
    """Return the beginning of a segment (ms since 1970) in UTC, such as ``2026-11-21T16:00:00Z``.

    ``default`` for the segment of seeds without a time.
    """
    return "default" if segment == DEFAULT_SEGMENT else time_text(segment)


def time_text(ms: int) -> str:
    """Return a time in ms since 1970 as ISO 8601 in UTC; milliseconds are omitted if they are 0."""
    moment = datetime.fromtimestamp(ms // 1000, UTC).replace(microsecond=ms % 1000 * 1000)
    parts = "milliseconds" if ms % 1000 else "seconds"
    return moment.isoformat(timespec=parts).replace("+00:00", "Z")


def segment_resolver(name: str, zone: ZoneInfo) -> SegmentResolver:
    """Return the resolver called ``name`` for the time zone ``zone``.

    ``hour``, ``day``, ``days:3``, ``week`` (from Monday), ``month``, ``none`` (one segment for all
    times), or an entry point of ``crawlyard.segments``: a callable that takes the zone and returns
    the resolver.

    Raises:
        InvalidFrontierSetting: the name is unknown, or the resolver cannot be loaded.
    """
    if name == "none":
        return lambda time: DEFAULT_SEGMENT
    days = _DAYS.fullmatch(name)
    if days is not None and int(days[1]) <= MAX_DAYS:
        return Slices(zone, _floor_days(int(days[1])))
    floors: dict[str, _Floor] = {
        "hour": _floor_hour,
        "day": _floor_days(1),
        "week": _floor_week,
        "month": _floor_month,
    }
    if name in floors:
        return Slices(zone, floors[name])
    factory = load_extension(GROUP, name, (*floors, "days:N", "none"))
    try:
        resolver: SegmentResolver = factory(zone)
    except Exception as error:  # noqa: BLE001 - a plug-in may raise anything
        raise InvalidFrontierSetting(
            f"{name} cannot be made: {type(error).__name__}: {error}"
        ) from None
    if not callable(resolver):
        raise InvalidFrontierSetting(f"{name} makes no resolver")
    return resolver


class Slices:
    """Segments that begin at a round local time of a zone.

    A local time that occurs twice begins a segment at its first occurrence; the hour repeated in
    autumn is a segment of its own. If the round time is skipped, the segment begins when the clock
    jumps over it.
    """

    def __init__(self, zone: ZoneInfo, floor: _Floor) -> None:
        self._zone = zone
        self._floor = floor
        # One-entry cache of minute and segment: most seeds of a batch share both.
        # UTC offsets change at full minutes only (see FIRST_TIME).
        self._last = (-1, 0)

    def __call__(self, time: int) -> int:
        minute = time // 60_000
        known, segment = self._last
        if known != minute:
            segment = self._begin(time)
            self._last = (minute, segment)
        return segment

    def _begin(self, time: int) -> int:
        local = datetime.fromtimestamp(time // 1000, self._zone)
        return _first_moment(self._floor(local), self._zone)


def _first_moment(wall: datetime, zone: ZoneInfo) -> int:
    """Return the first moment at which the zone's local time reaches ``wall``."""
    moment = wall.replace(tzinfo=zone).astimezone(UTC)
    if moment.astimezone(zone).replace(tzinfo=None, fold=0) != wall.replace(fold=0):
        # fold=1 uses the offset after the jump, so it is before the jump.
        before = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
        moment = _jump(before, moment, zone)
    return int(moment.timestamp()) * 1000


def _jump(before: datetime, later: datetime, zone: ZoneInfo) -> datetime:
    """Return the first second, up to ``later``, whose UTC offset differs from that of
    ``before``.
    """
    offset = before.astimezone(zone).utcoffset()
    while later - before > timedelta(seconds=1):
        middle = before + timedelta(seconds=int((later - before).total_seconds()) // 2)
        if middle.astimezone(zone).utcoffset() == offset:
            before = middle
        else:
            later = middle
    return later


def _floor_hour(local: datetime) -> datetime:
    # fold is kept: the second 02:00 of a night is not the first one.
    return local.replace(tzinfo=None, minute=0, second=0, microsecond=0)


def _day(ordinal: int) -> datetime:
    return datetime.fromordinal(ordinal)


def _floor_days(days: int) -> _Floor:
    def floor(local: datetime) -> datetime:
        past = (local.toordinal() - _FIRST_DAY) % days
        return _day(local.toordinal() - past)

    return floor


def _floor_week(local: datetime) -> datetime:
    return _day(local.toordinal() - local.weekday())


def _floor_month(local: datetime) -> datetime:
    return _day(local.toordinal() - local.day + 1)
