"""Page with a chart of one series that a rule watches."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpRequest
from django.urls import reverse

from apps.access.admin.base import projects_of
from apps.access.states import Role
from apps.projects.admin.project_choice import number_in
from apps.projects.models import Project
from apps.queuestats.models import Series, SeriesKind

PLATFORM = "platform"


def series_page(name: str, project_id: int | None, label: str) -> str:
    """Return the URL of the series page."""
    scope = PLATFORM if project_id is None else str(project_id)
    query = urlencode({"project": scope, "name": name, "label": label})
    return f"{reverse('admin:alerts_rule_series')}?{query}"


def series_shown(request: HttpRequest) -> dict[str, Any]:
    """Return the page's context for ``?project=7&name=queue.ready&label=…``. Raises ``Http404``."""
    scope = request.GET.get("project", "")
    project_id = None if scope == PLATFORM else number_in(scope)
    if scope == PLATFORM:
        visible = None in projects_of(request, Role.VIEWER)
    else:
        visible = Project.objects.visible_to(request.user).filter(pk=project_id or 0).exists()
    name, label = request.GET.get("name", ""), request.GET.get("label", "")
    # PostgreSQL rejects NUL characters in text.
    if not visible or "\0" in name + label:
        raise Http404
    series = Series.objects.filter(name=name, project=project_id, label=label).first()
    if series is None:
        raise Http404
    base = "series" if project_id is None else f"projects/{project_id}/series"
    return {
        "title": f"{name} {label}".rstrip(),
        "points": f"/api/v1/{base}/points?{urlencode({'name': name, 'label': label})}",
        "unit": "/s" if series.kind == SeriesKind.SUM else "",
    }
