"""Pages of time: calendar, timeline, and jobs that follow jobs."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any, Final

from django.contrib import admin
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.dates import WEEKDAYS_ABBR
from django.utils.translation import gettext as _

from apps.access.models import User
from apps.dashboard.queries.plans import calendar_of, job_graph, timeline_of

WINDOWS: Final = (6, 24, 72, 168)
USUAL_WINDOW: Final = 24


def calendar_page(request: HttpRequest) -> HttpResponse:
    """Month of ended and planned runs."""
    now = timezone.now()
    first = _month(request.GET.get("month", ""), now.astimezone(UTC).date().replace(day=1))
    context = _page(request, _("Calendar"))
    context |= {
        "month": calendar_of(_person(request), first, now),
        "weekdays": list(WEEKDAYS_ABBR.values()),
    }
    return TemplateResponse(request, "dashboard/calendar.html", context)


def timeline_page(request: HttpRequest) -> HttpResponse:
    """Runs as bars over time, by job or host."""
    text = request.GET.get("hours", "")
    hours = int(text) if text in map(str, WINDOWS) else USUAL_WINDOW
    by_host = request.GET.get("by") == "host"
    timeline = timeline_of(_person(request), hours=hours, by_host=by_host, now=timezone.now())
    context = _page(request, _("Timeline"))
    context |= {"timeline": timeline, "hours": hours, "by_host": by_host, "windows": WINDOWS}
    return TemplateResponse(request, "dashboard/timeline.html", context)


def dependencies_page(request: HttpRequest) -> HttpResponse:
    """Picture of jobs that follow jobs."""
    context = _page(request, _("Dependencies"))
    context["graph"] = job_graph(_person(request))
    return TemplateResponse(request, "dashboard/dependencies.html", context)


def _page(request: HttpRequest, title: str) -> dict[str, Any]:
    return {**admin.site.each_context(request), "title": title}


def _person(request: HttpRequest) -> User:
    if not isinstance(request.user, User):
        raise Http404
    return request.user


def _month(text: str, usual: date) -> date:
    """Return the first day of a month such as ``2026-11``, ``usual`` if it is not one."""
    try:
        month = datetime.strptime(text, "%Y-%m").replace(tzinfo=UTC).date()
    except ValueError:
        return usual
    # The weeks of these months, and the months beside them, are dates, too.
    return month if 1970 <= month.year <= 2200 else usual
