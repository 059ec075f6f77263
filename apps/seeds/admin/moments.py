"""Segments as people read them: when they begin, which one is now, which one is next."""

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
# No built-in segment is longer than ten years; a plug-in's may be.
_HORIZON_MS: Final = 12 * 366 * 24 * 3_600_000
_NAMES: Final[dict[str, Any]] = {
    "hour": gettext_lazy("by the hour"),
    "day": gettext_lazy("by day"),
    "week": gettext_lazy("by week"),
    "month": gettext_lazy("by month"),
    "none": gettext_lazy("one for all times"),
}


def zone_of(name: str) -> ZoneInfo:
    """The zone, or UTC where this machine has none of that name any more."""
    try:
        return time_zone(name)
    except InvalidFrontierSetting:
        return ZoneInfo("UTC")


def moment_of(ms: int) -> datetime:
    """Milliseconds since 1970 as a time; what no calendar holds is its last moment."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return datetime.max.replace(tzinfo=UTC)


def begins(segment: int, zone: ZoneInfo) -> str:
    """When a segment begins by the clocks of the frontier; a name for the default one."""
    if segment == DEFAULT_SEGMENT:
        return _("default segment")
    return f"{moment_of(segment).astimezone(zone):%Y-%m-%d %H:%M}"


def granularity_of(segments: str) -> str:
    """``days:3`` as people say it; the name of a plug-in as it is."""
    if segments in _NAMES:
        return str(_NAMES[segments])
    name, colon, number = segments.partition(":")
    if name == "days" and colon and number.isascii() and number.isdigit():
        count = int(number)
        return ngettext("by %(count)d day", "by %(count)d days", count) % {"count": count}
    return segments


def next_segment(resolver: SegmentResolver, now: int) -> int | None:
    """The beginning of the segment after that of ``now``, ms; None: none within 12 years.

    Raises whatever a plug-in does.
    """
    here = resolver(now)
    before, step = now, _MINUTE_MS
    while resolver(now + step) == here:
        before = now + step
        step *= 2
        if step > _HORIZON_MS:
            return None
    after = now + step
    while after - before > 1:
        middle = (before + after) // 2
        if resolver(middle) == here:
            before = middle
        else:
            after = middle
    return resolver(after)


def lasting(seconds: float) -> str:
    """A time to come, in its two largest units."""
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
