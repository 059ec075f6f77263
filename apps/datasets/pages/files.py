"""Page of the files that a run keeps."""

from __future__ import annotations

from typing import Final

from django.contrib import admin
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _

from apps.datasets.queries.files import IMAGE_TYPES, files_of_run
from apps.jobs.models import Run

PER_PAGE: Final = 50


def files_page(request: HttpRequest, pk: int) -> HttpResponse:
    """Show the files of a run by name; images with a preview."""
    visible = Run.objects.visible_to(request.user).select_related("job__project")
    run = get_object_or_404(visible, pk=pk)
    name = request.GET.get("name", "").replace("\x00", "")[:500]
    rows = files_of_run(run).filter(name__icontains=name).order_by("name", "pk")
    page = Paginator(rows, PER_PAGE).get_page(request.GET.get("page"))
    query = request.GET.copy()
    query.pop("page", None)
    context = admin.site.each_context(request)
    context |= {
        "title": _("Files of %(run)s") % {"run": run},
        "run": run,
        "page": page,
        "name": name,
        "query": query.urlencode(),
        "image_types": IMAGE_TYPES,
    }
    return TemplateResponse(request, "datasets/files.html", context)
