"""Template tags of every app: links to the audit trail, and saved filters."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, urlencode

from django import template
from django.conf import settings
from django.db.models import Model
from django.urls import reverse

from apps.access.models import SavedFilter
from apps.access.queries import KIND, OBJECT
from apps.access.services import clean_query, may_read_trail, person_of

register = template.Library()


@register.inclusion_tag("access/history_link.html", takes_context=True)
def history_link(context: template.Context, obj: Model | None) -> dict[str, Any]:
    """Link to the audit trail of ``obj``, for users who may read it."""
    if obj is None or obj.pk is None or not may_read_trail(context["request"]):
        return {"address": ""}
    about = urlencode({KIND: obj._meta.label_lower, OBJECT: obj.pk})
    return {"address": f"{reverse('admin:access_auditrecord_changelist')}?{about}"}


@register.inclusion_tag("access/history_link.html", takes_context=True)
def project_history_link(
    context: template.Context, project: Model | None, area: str
) -> dict[str, Any]:
    """Link to the audit trail of ``area`` (an app's label) in ``project``.

    For pages of objects that have no row, such as a biz or a router.
    """
    if project is None or not may_read_trail(context["request"]):
        return {"address": ""}
    about = urlencode({"project__id__exact": project.pk, "action__icontains": f"{area}."})
    return {"address": f"{reverse('admin:access_auditrecord_changelist')}?{about}"}


@register.inclusion_tag("access/saved_filters.html", takes_context=True)
def saved_filters(context: template.Context) -> dict[str, Any]:
    """The user's saved filters of this page, and a form that saves the current one. One query."""
    request = context["request"]
    person = person_of(request)
    if person is None:
        return {"person": None}
    try:
        current = clean_query(request.META.get("QUERY_STRING", ""))
    except ValueError:
        current = ""
    rows = list(SavedFilter.objects.visible_to(person).filter(path=request.path))
    parameters = sorted(parse_qsl(current))
    matching = [row for row in rows if current and sorted(parse_qsl(row.query)) == parameters]
    return {
        "person": person,
        "request": request,
        "path": request.path,
        "current": current,
        "rows": rows,
        "here": matching[0] if matching else None,
        "csrf_token": context.get("csrf_token"),
    }


@register.simple_tag
def sign_on_name() -> str:
    """Return the name of the OpenID Connect provider; "" without one."""
    return str(settings.OIDC_NAME) if settings.OIDC_URL else ""
