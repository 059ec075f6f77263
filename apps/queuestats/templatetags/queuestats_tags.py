"""Template tags for charts and rates."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from django import template
from django.utils.timezone import get_current_timezone_name
from django.utils.translation import gettext as _

register = template.Library()

HOUR: Final = 3600
DAY: Final = 24 * HOUR


@register.filter
def rate(value: float | None) -> str:
    """Format a rate with at most two significant decimals; ``–`` if unknown."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.2g}"


@register.inclusion_tag("queuestats/chart_media.html")
def chart_media() -> dict[str, Any]:
    """Render the scripts and styles of charts, after ``dashboard/dashboard.css``."""
    return {}


@register.inclusion_tag("queuestats/chart.html")
def chart(
    *,
    title: str,
    source: str = "",
    series: Sequence[Mapping[str, str]] = (),
    unit: str = "",
    span: int = HOUR,
    timed: bool = True,
    style: str = "",
    height: int = 180,
    maximum: float | None = None,
    refresh: int | None = None,
    group: str = "",
) -> dict[str, Any]:
    """Render a chart that refreshes itself.

    Args:
        title: Title of the chart.
        source: REST URL that returns points; ``seconds`` or ``since`` and ``until`` are appended.
        series: Instead of ``source``: several lines, each ``{"source": ..., "title": ...}``.
        unit: "", "%", "/s", "s", or "bytes" and "bytes/s", which are written as KB, MB, ….
        span: Seconds before now that are shown at first.
        timed: False if ``source`` has no period; the chart then has no choice of spans.
        style: "", "bars", "steps" or "points".
        height: Pixels.
        maximum: Upper end of the scale if known, such as 100 for "%".
        refresh: Seconds between refreshes; 0: never; None: depends on the step of the points.
        group: Charts of one group on a page show the same span.
    """
    if bool(source) == bool(series):
        raise ValueError("a chart has a source or series")
    attributes: dict[str, Any] = {"title": title, "unit": unit, "span": span, "height": height}
    attributes["time-zone"] = get_current_timezone_name()
    attributes["spans"] = json.dumps(_spans() if timed else [], ensure_ascii=False)
    if source:
        attributes["source"] = source
    else:
        attributes["series"] = json.dumps([dict(line) for line in series], ensure_ascii=False)
    optional = {"style": style, "max": maximum, "refresh": refresh, "group": group}
    attributes |= {name: value for name, value in optional.items() if value not in ("", None)}
    return {"attributes": attributes}


def _spans() -> list[tuple[int, str]]:
    return [
        (300, _("%(count)d min") % {"count": 5}),
        (HOUR, _("%(count)d h") % {"count": 1}),
        (6 * HOUR, _("%(count)d h") % {"count": 6}),
        (DAY, _("%(count)d d") % {"count": 1}),
        (7 * DAY, _("%(count)d d") % {"count": 7}),
    ]
