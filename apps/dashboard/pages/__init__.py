"""Read-only pages: overview and system health. Their buttons post to the admin."""

from __future__ import annotations

from typing import Any, Final

from django.contrib import admin
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.translation import gettext as _

from apps.access.models import User
from apps.dashboard.backlog import backlog
from apps.dashboard.charts import home_charts
from apps.dashboard.failures import failure_view, runbook_section
from apps.dashboard.pages.periods import days_of
from apps.dashboard.probes import probe
from apps.dashboard.queries import home_view
from apps.queuestats.queries.job_days import PERIODS, period_of

USUAL_DAYS: Final = 7


def home(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Add the overview to the context of the admin's index; the admin theme calls this."""
    # Queues are read last, because the broker may hang.
    context |= {"title": _("Overview"), "charts": home_charts(_person(request))}
    context |= _home_context(request)
    period = period_of(_person(request), days=days_of(request, USUAL_DAYS), now=timezone.now())
    return context | {"period": period, "periods": PERIODS}


def home_live(request: HttpRequest) -> HttpResponse:
    """Live part of the overview."""
    return TemplateResponse(request, "dashboard/home_live.html", _home_context(request))


def health(request: HttpRequest) -> HttpResponse:
    """Page of system health; probes have timeouts, so that it loads while servers hang."""
    context = {**admin.site.each_context(request), **_health_context(request)}
    context["title"] = _("System health")
    return TemplateResponse(request, "dashboard/health.html", context)


def health_live(request: HttpRequest) -> HttpResponse:
    """Live part of the page of system health."""
    return TemplateResponse(request, "dashboard/health_live.html", _health_context(request))


def runbook(request: HttpRequest) -> HttpResponse:
    """Page of one section of the runbook."""
    heading = request.GET.get("section", "")
    text = runbook_section(heading)
    if not text:
        raise Http404(_("The runbook has no such section."))
    context = {**admin.site.each_context(request), "title": heading, "text": text}
    return TemplateResponse(request, "dashboard/runbook.html", context)


def _health_context(request: HttpRequest) -> dict[str, Any]:
    return {"view": failure_view(_person(request), timezone.now(), probe(), backlog())}


def _home_context(request: HttpRequest) -> dict[str, Any]:
    return {"home": home_view(_person(request), timezone.now()), "backlog": backlog()}


def _person(request: HttpRequest) -> User:
    if not isinstance(request.user, User):
        raise Http404
    return request.user
