"""Parts of other pages: whether somebody is notified, and the recipients of a job."""

from __future__ import annotations

from typing import Any

from django import template
from django.http import HttpRequest

from apps.access.services.visibility import person_of, projects_of
from apps.access.states import Role
from apps.alerts.models import RunSubscription
from apps.alerts.queries.recipients import channels_of, failure_rules, unnotified_projects
from apps.alerts.services.recipients import recipient_name
from apps.jobs.models import Job

register = template.Library()


@register.inclusion_tag("alerts/nobody_notified.html", takes_context=True)
def nobody_notified(context: dict[str, Any]) -> dict[str, Any]:
    """Return the projects in which nobody is notified of failed runs. Five queries."""
    request: HttpRequest = context["request"]
    person = person_of(request)
    silent, count = ([], 0) if person is None else unnotified_projects(person)
    return {
        "projects": silent,
        "is_everywhere": bool(silent) and len(silent) == count,
        "may_edit": bool(projects_of(request, Role.EDITOR)),
    }


@register.inclusion_tag("alerts/job_notifications.html", takes_context=True)
def job_notifications(context: dict[str, Any], job: Job) -> dict[str, Any]:
    """Return who is notified of the runs of a job, and how to change that. Five queries."""
    request: HttpRequest = context["request"]
    person = person_of(request)
    may_edit = job.project_id in projects_of(request, Role.EDITOR)
    rows = RunSubscription.objects.of_job(job.pk).select_related("channel__person", "project")
    mine = next((r for r in rows if r.job_id and person and r.channel.person_id == person.pk), None)
    may_platform = None in projects_of(request, Role.VIEWER)
    return {
        "request": request,
        "job": job,
        "person": person,
        "mine": mine,
        "when": "" if mine is None else "end" if mine.every_end else "failure",
        "rows": [
            {"row": row, "name": recipient_name(row.channel), "may_remove": may_edit and row.job_id}
            for row in rows
        ],
        "rules": failure_rules(job.project_id),
        "shows_rules": may_platform or may_edit,
        "may_edit": may_edit,
        "channels": channels_of(job.project_id).order_by("name") if may_edit else (),
    }
