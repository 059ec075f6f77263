"""Read-only pages: overview, run and system health. Their buttons post to the admin."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import admin
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.translation import gettext as _

from apps.access.models import User
from apps.access.services import has_role
from apps.access.states import Role
from apps.dashboard.backlog import backlog
from apps.dashboard.charts import home_charts, run_charts
from apps.dashboard.failures import failure_view, runbook_section
from apps.dashboard.probes import probe
from apps.dashboard.queries import home_view, run_view
from apps.dashboard.queries.runs import framework_stats
from apps.datasets.queries.items import run_accounting
from apps.datasets.queries.kept_pages import page_accounting
from apps.jobs.models import Run
from apps.jobs.states import OverlapPolicy
from yardkit import topology


def home(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Add the overview to the context of the admin's index; the admin theme calls this."""
    # Queues are read last, because the broker may hang.
    context |= {"title": _("Overview"), "charts": home_charts(_person(request))}
    context |= _home_context(request)
    return context


def home_live(request: HttpRequest) -> HttpResponse:
    """Live part of the overview."""
    return TemplateResponse(request, "dashboard/home_live.html", _home_context(request))


def run_page(request: HttpRequest, pk: int) -> HttpResponse:
    """Page of one run."""
    context = _run_context(request, pk)
    run = context["view"].run
    context |= admin.site.each_context(request)
    context["stats"] = framework_stats(run)
    context |= {"title": str(run), "opts": Run._meta, "original": run, "charts": run_charts(run)}
    return TemplateResponse(request, "dashboard/run.html", context)


def run_live(request: HttpRequest, pk: int) -> HttpResponse:
    """Live part of the page of a run."""
    return TemplateResponse(request, "dashboard/run_live.html", _run_context(request, pk))


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


def _run_context(request: HttpRequest, pk: int) -> dict[str, Any]:
    person = _person(request)
    visible = Run.objects.visible_to(person).select_related("job__project", "plan")
    run = visible.filter(pk=pk).first()
    if run is None:
        raise Http404(_("This run does not exist, or you do not have permission to see it."))
    now = timezone.now()
    view = run_view(run, now)
    seconds = ((run.ended_at or now) - run.started_at).total_seconds() if run.started_at else 0.0
    return {
        "view": view,
        "seconds": seconds,
        "items": run_accounting(run.pk, view.totals),
        "kept": page_accounting(run),
        "average": view.totals.pages / seconds if seconds > 0 else None,
        "arguments": json.dumps(run.arguments, indent=2, ensure_ascii=False),
        "can_operate": has_role(person, run.job.project_id, Role.OPERATOR),
        "answer_seconds": topology.LIFECYCLE_ANSWER_SECONDS,
        "overlaps": OverlapPolicy.choices,
    }


def _person(request: HttpRequest) -> User:
    if not isinstance(request.user, User):
        raise Http404
    return request.user
