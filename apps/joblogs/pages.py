"""A log on a page of its own, to send to somebody or to keep open on a phone."""

from __future__ import annotations

from django.contrib import admin
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _

from apps.joblogs.queries import sees_stream


def log_page(request: HttpRequest, stream: str) -> HttpResponse:
    """The live tail of one log; 404 unless its run or build is visible."""
    if not sees_stream(request.user, stream):
        raise Http404
    title = _("Log of %(stream)s") % {"stream": stream}
    context = admin.site.each_context(request) | {"title": title, "stream": stream}
    return TemplateResponse(request, "joblogs/page.html", context)
