"""Pages of one run: overview, log and settings. Their buttons post to the admin."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from django.contrib import admin
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.translation import gettext as _

from apps.access.models import User
from apps.access.services import has_role
from apps.access.states import Role
from apps.dashboard.charts import run_charts
from apps.dashboard.queries import run_view
from apps.dashboard.queries.runs import framework_stats, run_actions
from apps.datasets.queries.items import run_accounting
from apps.datasets.queries.kept_pages import page_accounting
from apps.jobs.models import Run
from apps.jobs.states import OverlapPolicy
from yardkit import topology


def run_page(request: HttpRequest, pk: int) -> HttpResponse:
    """Tab "Overview" of a run."""
    run = _run(request, pk)
    context = _overview(request, run)
    context |= _page(request, run, str(run))
    context |= {"stats": framework_stats(run), "charts": run_charts(run)}
    return TemplateResponse(request, "dashboard/run.html", context)


def run_live(request: HttpRequest, pk: int) -> HttpResponse:
    """Live part of the tab "Overview"."""
    return TemplateResponse(
        request, "dashboard/run_live.html", _overview(request, _run(request, pk))
    )


def run_log(request: HttpRequest, pk: int) -> HttpResponse:
    """Tab "Log" of a run."""
    run = _run(request, pk)
    context = _head(request, run) | _page(request, run, _("Log of %(run)s") % {"run": run})
    return TemplateResponse(request, "dashboard/run_log.html", context)


def run_head_live(request: HttpRequest, pk: int) -> HttpResponse:
    """Live state and buttons above the tabs "Log" and "Settings"."""
    return TemplateResponse(
        request, "dashboard/run_head_live.html", _head(request, _run(request, pk))
    )


def run_settings(request: HttpRequest, pk: int) -> HttpResponse:
    """Tab "Settings" of a run: arguments, image, place, and what the job overrides."""
    run = _run(request, pk)
    context = _head(request, run)
    context |= _page(request, run, _("Settings of %(run)s") % {"run": run})
    context |= {
        "arguments": json.dumps(run.arguments, indent=2, ensure_ascii=False),
        "overlaps": OverlapPolicy.choices,
        "facts": _facts(run),
    }
    return TemplateResponse(request, "dashboard/run_settings.html", context)


def _run(request: HttpRequest, pk: int) -> Run:
    visible = Run.objects.visible_to(request.user).select_related("job__project", "plan")
    run = visible.filter(pk=pk).first()
    if run is None:
        raise Http404(_("This run does not exist, or you do not have permission to see it."))
    return run


def _page(request: HttpRequest, run: Run, title: str) -> dict[str, Any]:
    return {**admin.site.each_context(request), "title": title, "opts": Run._meta, "original": run}


def _can_operate(request: HttpRequest, run: Run) -> bool:
    person = request.user
    return isinstance(person, User) and has_role(person, run.job.project_id, Role.OPERATOR)


def _head(request: HttpRequest, run: Run) -> dict[str, Any]:
    return {
        "run": run,
        "allowed": run_actions(run, timezone.now()),
        "can_operate": _can_operate(request, run),
    }


def _overview(request: HttpRequest, run: Run) -> dict[str, Any]:
    now = timezone.now()
    view = run_view(run, now)
    seconds = _seconds(run, now) or 0.0
    return {
        "view": view,
        "run": run,
        "allowed": view.allowed,
        "seconds": seconds,
        "items": run_accounting(run.pk, view.totals),
        "kept": page_accounting(run),
        "average": view.totals.pages / seconds if seconds > 0 else None,
        "can_operate": _can_operate(request, run),
        "answer_seconds": topology.LIFECYCLE_ANSWER_SECONDS,
    }


def _seconds(run: Run, now: datetime) -> float | None:
    return ((run.ended_at or now) - run.started_at).total_seconds() if run.started_at else None


def _facts(run: Run) -> list[tuple[str, Any]]:
    """Return what was recorded of a run, by title; what is empty is left out."""
    facts = [
        (_("queued"), run.created_at),
        (_("placed at"), run.placed_at),
        (_("started"), run.started_at),
        (_("ended"), run.ended_at),
        (_("not before"), run.not_before),
        (_("priority"), run.priority),
        (_("attempt"), run.attempt),
        (_("restarts"), run.restarts),
        (_("image"), run.image_reference),
        (_("digest"), run.image_digest),
        (_("host"), run.host),
        (_("container"), run.container),
        (_("process ID"), run.pid),
        (_("execution"), run.boot),
        (_("last seen at"), run.watched_at),
        (_("exit code"), run.exit_code),
    ]
    return [(title, value) for title, value in facts if value not in (None, "")]
