"""Pages of one job: overview, runs and alerts. Their buttons post to the admin."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.translation import gettext as _

from apps.access.admin.lists import page_links
from apps.access.services import has_role
from apps.access.states import Role
from apps.dashboard.pages.periods import days_of
from apps.dashboard.queries.jobs import RUNS_A_PAGE, incidents_of, job_view, runs_of
from apps.jobs.models import Job
from apps.jobs.services import explain_placement
from apps.jobs.states import OverlapPolicy
from apps.queuestats.queries.job_days import PERIODS

USUAL_DAYS = 30


def job_page(request: HttpRequest, pk: int) -> HttpResponse:
    """Tab "Overview" of a job."""
    job = _job(request, pk)
    now = timezone.now()
    context = _page(request, job, job.name)
    context |= {
        "view": job_view(job, days=days_of(request, USUAL_DAYS), now=now),
        "periods": PERIODS,
        "placement": explain_placement(job=job, now=now),
        "overlaps": OverlapPolicy.choices,
        "active_run": _active_run(request, job),
        "may_start": has_role(request.user, job.project_id, Role.OPERATOR),
    }
    return TemplateResponse(request, "dashboard/job.html", context)


def job_runs(request: HttpRequest, pk: int) -> HttpResponse:
    """Tab "Runs" of a job."""
    job = _job(request, pk)
    before = request.GET.get("before", "")
    rows = runs_of(
        job,
        limit=RUNS_A_PAGE + 1,
        before=int(before) if before.isascii() and before.isdigit() else None,
    )
    context = _page(request, job, _("Runs of %(job)s") % {"job": job.name})
    following = rows[RUNS_A_PAGE - 1].run.pk if len(rows) > RUNS_A_PAGE else ""
    context |= {"rows": rows[:RUNS_A_PAGE], "pages": page_links(request, "before", following)}
    return TemplateResponse(request, "dashboard/job_runs.html", context)


def job_alerts(request: HttpRequest, pk: int) -> HttpResponse:
    """Tab "Alerts" of a job: open incidents, and its yield against the usual one."""
    job = _job(request, pk)
    context = _page(request, job, _("Alerts of %(job)s") % {"job": job.name})
    context["incidents"] = incidents_of(request.user, job)
    return TemplateResponse(request, "dashboard/job_alerts.html", context)


def _job(request: HttpRequest, pk: int) -> Job:
    rows = Job.objects.visible_to(request.user).select_related("project", "image", "schedule")
    job: Job | None = rows.filter(pk=pk).first()
    if job is None:
        raise Http404(_("This job does not exist, or you do not have permission to see it."))
    return job


def _page(request: HttpRequest, job: Job, title: str) -> dict[str, Any]:
    return {
        **admin.site.each_context(request),
        "title": title,
        "opts": Job._meta,
        "original": job,
        "job": job,
    }


def _active_run(request: HttpRequest, job: Job) -> Any:
    """Return the run because of which a start was refused, if it is still active."""
    text = request.GET.get("active", "")
    if not (text.isascii() and text.isdigit()):
        return None
    return job.runs.active().filter(pk=int(text)).first()
