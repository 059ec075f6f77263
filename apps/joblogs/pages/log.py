"""Page of a single log."""

from __future__ import annotations

from django.contrib import admin
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext as _

from apps.joblogs.engine.lines import owner_of
from apps.joblogs.queries import owners_of, sees_stream
from apps.jobs.models import Job


def log_page(request: HttpRequest, stream: str) -> HttpResponse:
    """Live tail of one log; 404 unless its run or build is visible."""
    if not sees_stream(request.user, stream):
        raise Http404
    kind, pk = owner_of(stream)
    owner = owners_of([stream]).get(stream)
    if owner is None:
        # Deleted concurrently.
        raise Http404
    job = Job.objects.filter(pk=owner.job).first() if owner.job else None
    if kind == "run":
        back = reverse("dashboard:run", args=[pk])
        title = _("Log of %(stream)s") % {"stream": f"{job.name} #{pk}" if job else stream}
    else:
        back = reverse("admin:projects_build_change", args=[pk])
        title = _("Log of %(stream)s") % {"stream": stream}
    context = admin.site.each_context(request)
    context |= {"title": title, "stream": stream, "back": back, "is_run": kind == "run"}
    return TemplateResponse(request, "joblogs/page.html", context)
