"""Page of the search over all logs, the newest lines first, each with its permalink."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from apps.access.admin.lists import page_links
from apps.joblogs.engine.lines import owner_of
from apps.joblogs.errors import LogsError, LogsUnavailable
from apps.joblogs.models import ErrorGroup
from apps.joblogs.pages.forms import SearchForm
from apps.joblogs.queries import searched_projects
from apps.joblogs.services import search_lines
from apps.joblogs.stores.base import FoundLines, StoredLine
from apps.jobs.models import Job
from apps.projects.models import Project

PER_PAGE: Final = 100


@dataclass(frozen=True, slots=True)
class FoundLine:
    """Line with the names and URLs of its run, job or build."""

    line: StoredLine
    project: str
    # "headlines #7", "build #3"
    owner: str
    # URL of the run or build.
    owner_address: str
    # Permalink of the line.
    address: str


def search_page(request: HttpRequest) -> HttpResponse:
    """Show matching lines of all runs and builds that the user may see."""
    form = SearchForm(request.GET, request.user)
    results, problem, status = FoundLines(lines=[]), "", 200
    if form.is_valid():
        search = form.search(timezone.now(), searched_projects(request.user))
        cursor = request.GET.get("cursor", "")
        try:
            results = search_lines(search, cursor=cursor, limit=PER_PAGE)
        except LogsError as error:
            problem = error.text
            status = 503 if isinstance(error, LogsUnavailable) else 200
    context = admin.site.each_context(request)
    context |= {
        "title": _("Search logs"),
        "form": form,
        "rows": named(results.lines),
        "words": form.data.get("text", ""),
        "problem": problem,
        "pages": page_links(request, "cursor", results.next),
        "kind": _kind(request, form),
        "other_errors": _without(request, "fingerprint"),
    }
    return TemplateResponse(request, "joblogs/search.html", context, status=status)


def named(lines: Sequence[StoredLine]) -> list[FoundLine]:
    """Add names and URLs to the lines. Two queries."""
    jobs = Job.objects.in_bulk({line.job for line in lines if line.job})
    projects = Project.objects.in_bulk({line.project for line in lines})
    rows = []
    for line in lines:
        kind, pk = owner_of(line.stream)
        job = jobs.get(line.job)
        name = job.name if job is not None else kind
        view = "dashboard:run" if kind == "run" else "admin:projects_build_change"
        rows.append(
            FoundLine(
                line=line,
                project=str(projects.get(line.project, "")),
                owner=f"{name} #{pk}",
                owner_address=reverse(view, args=[pk]),
                address=line_address(line),
            )
        )
    return rows


def line_address(line: StoredLine) -> str:
    """Return the permalink of a line."""
    return f"{reverse('joblogs:log', args=[line.stream])}#{line.ref}"


def _kind(request: HttpRequest, form: SearchForm) -> ErrorGroup | None:
    """Return the error group that the search is limited to."""
    wanted: Any = form.cleaned_data.get("fingerprint") if form.is_valid() else ""
    if not wanted:
        return None
    return ErrorGroup.objects.visible_to(request.user).filter(fingerprint=wanted).first()


def _without(request: HttpRequest, name: str) -> str:
    query = request.GET.copy()
    for parameter in (name, "cursor"):
        query.pop(parameter, None)
    return query.urlencode()
