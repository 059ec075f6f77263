"""What pages of every app offer: the history of what they show, and filters to keep."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, urlencode

from django import template
from django.db.models import Model
from django.urls import reverse

from apps.access.models import SavedFilter
from apps.access.queries import KIND, OBJECT
from apps.access.services import clean_query, may_read_trail, person_of

register = template.Library()


@register.inclusion_tag("access/history_link.html", takes_context=True)
def history_link(context: template.Context, obj: Model | None) -> dict[str, Any]:
    """A link to the audit trail of ``obj``, for those who may read it."""
    if obj is None or obj.pk is None or not may_read_trail(context["request"]):
        return {"address": ""}
    about = urlencode({KIND: obj._meta.label_lower, OBJECT: obj.pk})
    return {"address": f"{reverse('admin:access_auditrecord_changelist')}?{about}"}


@register.inclusion_tag("access/history_link.html", takes_context=True)
def project_history_link(
    context: template.Context, project: Model | None, area: str
) -> dict[str, Any]:
    """A link to what was done in ``area`` (an app's label) of ``project``.

    For pages of things that are no rows of their own: a biz, a router.
    """
    if project is None or not may_read_trail(context["request"]):
        return {"address": ""}
    about = urlencode({"project__id__exact": project.pk, "action__icontains": f"{area}."})
    return {"address": f"{reverse('admin:access_auditrecord_changelist')}?{about}"}


@register.inclusion_tag("access/saved_filters.html", takes_context=True)
def saved_filters(context: template.Context) -> dict[str, Any]:
    """The person's own filters of this page, and a form to keep the one that is set. One query."""
    request = context["request"]
    person = person_of(request)
    if person is None:
        return {"person": None}
    try:
        current = clean_query(request.META.get("QUERY_STRING", ""))
    except ValueError:
        current = ""
    rows = list(SavedFilter.objects.visible_to(person).filter(path=request.path))
    asked = sorted(parse_qsl(current))
    here = [row for row in rows if current and sorted(parse_qsl(row.query)) == asked]
    return {
        "person": person,
        "request": request,
        "path": request.path,
        "current": current,
        "rows": rows,
        "here": here[0] if here else None,
        "csrf_token": context.get("csrf_token"),
    }
