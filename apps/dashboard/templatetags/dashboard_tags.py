"""Number formats of the live pages; static/dashboard/live.js uses the same ones."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from django import template
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timesince import timesince
from django.utils.translation import gettext as _

from apps.access.services import has_role
from apps.access.states import Role
from apps.alerts.models import Incident
from apps.alerts.services.texts import sentence
from apps.alerts.states import Severity
from apps.jobs.models import Job
from apps.jobs.states import STATUS_TONES
from apps.queuestats.queries.job_days import Figures

register = template.Library()
BARS_WIDTH: Final = 200
BARS_HEIGHT: Final = 36
_MEASURES: Final = {"mean_seconds": "seconds"}
_SEVERITY_TONES = {Severity.INFO: "info", Severity.WARNING: "warning", Severity.CRITICAL: "danger"}


@register.filter
def count(value: int | None) -> str:
    """Format ``1234567`` as ``1,234,567`` in every language."""
    return "–" if value is None else f"{value:,}"


@register.filter
def size(value: float) -> str:
    """Format bytes as ``12.3 MB``, in units of 1024."""
    amount = float(value)
    for unit in ("B", "KB", "MB", "GB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TB"


@register.filter
def clock(seconds: float) -> str:
    """Format a duration as ``m:ss`` or ``h:mm:ss``."""
    minutes, second = divmod(max(0, int(seconds)), 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour}:{minute:02}:{second:02}" if hour else f"{minute}:{second:02}"


@register.filter
def lasting(seconds: float) -> str:
    """Format a duration in its two largest units: ``7 d``, ``1 h 30 min``, ``40 s``."""
    whole = max(0, int(seconds))
    minutes, second = divmod(whole, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    parts = [
        (days, _("%(count)d d")),
        (hour, _("%(count)d h")),
        (minute, _("%(count)d min")),
        (second, _("%(count)d s")),
    ]
    units = [text % {"count": number} for number, text in parts if number]
    return " ".join(units[:2]) or parts[-1][1] % {"count": 0}


@register.filter
def measured(value: float, name: str) -> str:
    """Format a figure of a run by its name."""
    if name == "seconds":
        return clock(value)
    return size(value) if name == "bytes_received" else count(int(value))


@register.filter
def ago(moment: datetime | None) -> str:
    """Format a time as relative to now, such as ``5 s ago``."""
    if moment is None:
        return _("never")
    seconds = max(0, int((timezone.now() - moment).total_seconds()))
    if seconds < 60:
        return _("%(count)d s ago") % {"count": seconds}
    return _("%(time)s ago") % {"time": timesince(moment, depth=1)}


@register.filter
def tone(status: str) -> str:
    """Return the colour of a run's state or outcome."""
    return STATUS_TONES[status]


@register.filter
def severity_tone(severity: str) -> str:
    """Return the colour of an incident's severity."""
    return _SEVERITY_TONES[Severity(severity)]


@register.filter
def summary(incident: Incident) -> str:
    """Return one sentence about what is wrong."""
    return sentence(incident)


@register.inclusion_tag("dashboard/job_head.html", takes_context=True)
def job_head(context: dict[str, Any], job: Job, tab: str) -> dict[str, Any]:
    """Return the context of the tabs and buttons of a job's pages."""
    request = context["request"]
    may_start = context.get("may_start")
    if may_start is None:
        may_start = has_role(request.user, job.project_id, Role.OPERATOR)
    return {
        "request": request,
        "csrf_token": context.get("csrf_token"),
        "job": job,
        "tab": tab,
        "may_start": may_start,
        "may_clone": has_role(request.user, job.project_id, Role.EDITOR),
        "preview": f"{reverse('admin:agents_agent_preview')}?job={job.pk}",
    }


@register.inclusion_tag("dashboard/daily_bars.html")
def daily_bars(days: Sequence[Figures], name: str) -> dict[str, Any]:
    """Return the bars of one figure by day; coordinates as locale-independent SVG numbers."""
    values = [float(getattr(day, name) or 0) for day in days]
    highest = max([*values, 1.0])
    step = BARS_WIDTH / len(days)
    shown = [measured(value, _MEASURES.get(name, name)) for value in values]
    bars = [
        {
            "x": f"{number * step:.2f}",
            "wide": f"{max(step * 0.8, 0.5):.2f}",
            "y": f"{BARS_HEIGHT * (1 - value / highest):.2f}",
            "tall": f"{BARS_HEIGHT * value / highest:.2f}",
            "day": day.day,
            "text": text,
        }
        for number, (day, value, text) in enumerate(zip(days, values, shown, strict=True))
    ]
    return {"bars": bars, "width": BARS_WIDTH, "height": BARS_HEIGHT}


@register.simple_tag
def counter(name: str, value: int) -> SafeString:
    """Render a number that live updates may change."""
    return format_html('<span data-counter="{}">{}</span>', name, count(value))
