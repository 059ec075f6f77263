"""Display names of segments and times."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from apps.seeds.engine.errors import InvalidFrontierSetting
from apps.seeds.engine.seeds import DEFAULT_SEGMENT
from apps.seeds.engine.segments import SegmentResolver, time_zone

_MINUTE_MS: Final = 60_000
# Built-in segments last at most ten years; a plug-in's may be longer.
_HORIZON_MS: Final = 12 * 366 * 24 * 3_600_000
_NAMES: Final[dict[str, Any]] = {
    "hour": gettext_lazy("by the hour"),
    "day": gettext_lazy("by day"),
    "week": gettext_lazy("by week"),
    "month": gettext_lazy("by month"),
    "none": gettext_lazy("a single segment"),
}


def zone_of(name: str) -> ZoneInfo:
    """Return the time zone, or UTC if this host does not know the name."""
    try:
        return time_zone(name)
    except InvalidFrontierSetting:
        return ZoneInfo("UTC")


def moment_of(ms: int) -> datetime:
    """Convert ms since 1970 to a datetime; values out of range become the latest datetime."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return datetime.max.replace(tzinfo=UTC)


def begins(segment: int, zone: ZoneInfo) -> str:
    """Return the beginning of a segment in the frontier's time zone; the default segment has a
    name.
    """
    if segment == DEFAULT_SEGMENT:
        return _("default segment")
    return f"{moment_of(segment).astimezone(zone):%Y-%m-%d %H:%M}"


def granularity_of(segments: str) -> str:
    """Return ``days:3`` as readable text; the name of a plug-in unchanged."""
    if segments in _NAMES:
        return str(_NAMES[segments])
    name, colon, number = segments.partition(":")
    if name == "days" and colon and number.isascii() and number.isdigit():
        count = int(number)
        return ngettext("by %(count)d day", "by %(count)d days", count) % {"count": count}
    return segments


def next_segment(resolver: SegmentResolver, now: int) -> int | None:
    """Return the beginning (ms) of the segment after that of ``now``; None if none within 12 years.

    Raises the errors of a plug-in.
    """
    current = resolver(now)
    before, step = now, _MINUTE_MS
    while resolver(now + step) == current:
        before = now + step
        step *= 2
        if step > _HORIZON_MS:
            return None
    after = now + step
    while after - before > 1:
        middle = (before + after) // 2
        if resolver(middle) == current:
            before = middle
        else:
            after = middle
    return resolver(after)


def lasting(seconds: float) -> str:
    """Return a duration in its two largest units."""
    minutes = max(0, round(seconds / 60))
    if minutes < 1:
        return _("less than a minute")
    if minutes < 120:
        return _("%(count)d min") % {"count": minutes}
    hours, minute = divmod(minutes, 60)
    if hours < 48:
        return _("%(hours)d h %(minutes)d min") % {"hours": hours, "minutes": minute}
    days, hour = divmod(hours, 24)
    return _("%(days)d d %(hours)d h") % {"days": days, "hours": hour}
