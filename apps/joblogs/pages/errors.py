"""Page of error groups over all jobs: number, first and last occurrence, first image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlencode

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from apps.access.models import User
from apps.access.services import has_role, project_ids
from apps.access.states import Role
from apps.joblogs.errors import LogsUnavailable
from apps.joblogs.models import ErrorGroup
from apps.joblogs.pages.forms import SPANS, ErrorsForm
from apps.joblogs.queries import searched_projects
from apps.joblogs.services import LineCounts, count_groups, ignore_group, watch_group

PER_PAGE: Final = 50
# Number of groups that are counted, the latest ones.
MOST_COUNTED: Final = 1000


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """Row of an error group."""

    group: ErrorGroup
    # None: the store is unavailable, or the group is not among the latest ones.
    count: int | None
    streams: int | None
    # Permalink of one error; "" if none is stored.
    sample_address: str
    lines_address: str
    # The error first occurred with the job's current image.
    is_new: bool
    may_operate: bool


def errors_page(request: HttpRequest) -> HttpResponse:
    """Page of error groups, the latest first."""
    form = ErrorsForm(request.GET, request.user)
    groups = (
        ErrorGroup.objects.visible_to(request.user)
        .select_related("project", "job", "first_run", "first_image", "ignored_by")
        .order_by("-last_at", "-id")
    )
    rows: list[ErrorRow] = []
    problem, page = "", None
    if form.is_valid():
        now, values = timezone.now(), form.cleaned_data
        since = now - SPANS[values["span"] or "1d"]
        matching = groups.filter(**_wanted(values)).seen_since(since)
        page = Paginator(matching, PER_PAGE).get_page(request.GET.get("page"))
        shown: Sequence[ErrorGroup] = list(page)
        counts, problem = _counts(request.user, values, since) if shown else (None, "")
        operated = project_ids(request.user, at_least=Role.OPERATOR)
        rows = [
            _row(group, counts, values["span"] or "1d", group.project_id in operated)
            for group in shown
        ]
    query = request.GET.copy()
    query.pop("page", None)
    context = admin.site.each_context(request)
    context |= {
        "title": _("Errors"),
        "form": form,
        "rows": rows,
        "page": page,
        "query": query.urlencode(),
        "problem": problem,
        "here": request.get_full_path(),
    }
    return TemplateResponse(request, "joblogs/errors.html", context)


@require_POST
def move_error(request: HttpRequest, pk: int, what: str) -> HttpResponse:
    """Ignore or reopen an error group; requires the role operator."""
    if not isinstance(request.user, User) or what not in ("ignore", "watch"):
        raise Http404
    group = get_object_or_404(ErrorGroup.objects.visible_to(request.user), pk=pk)
    if not has_role(request.user, group.project_id, Role.OPERATOR):
        raise PermissionDenied
    if what == "ignore":
        ignore_group(group=group, actor=request.user, now=timezone.now())
        messages.success(
            request, _("Ignored. New occurrences are still counted, but raise no alert.")
        )
    else:
        watch_group(group=group, actor=request.user)
        messages.success(request, _("The group is open again."))
    back = request.POST.get("back", "")
    if not url_has_allowed_host_and_scheme(back, allowed_hosts=None):
        back = reverse("joblogs:errors")
    return HttpResponseRedirect(back)


def _wanted(values: dict[str, Any]) -> dict[str, Any]:
    wanted: dict[str, Any] = {
        "project": values["project"],
        "job": values["job"],
        "first_image": values["image"],
        "state": values["state"],
    }
    return {name: value for name, value in wanted.items() if value}


def _counts(user: object, values: dict[str, Any], since: datetime) -> tuple[LineCounts | None, str]:
    project, job = values["project"], values["job"]
    projects = {project.pk} if project else searched_projects(user)
    try:
        counted = count_groups(
            projects, since=since, limit=MOST_COUNTED, job=job.pk if job else None
        )
    except LogsUnavailable as error:
        return None, error.text
    return counted, ""


def _row(group: ErrorGroup, counts: LineCounts | None, span: str, may_operate: bool) -> ErrorRow:
    kind = (group.project_id, group.job_id or 0, group.fingerprint)
    counted = counts.of(kind) if counts is not None else None
    newest = counts.kinds.get(kind) if counts is not None else None
    about = {"fingerprint": group.fingerprint, "span": span}
    about |= {"job": str(group.job_id)} if group.job_id else {"project": str(group.project_id)}
    sample = newest.sample if newest is not None else None
    at_sample = f"{reverse('joblogs:log', args=[sample.stream])}#{sample.ref}" if sample else ""
    return ErrorRow(
        group=group,
        count=counted[0] if counted is not None else None,
        streams=counted[1] if counted is not None else None,
        sample_address=at_sample,
        lines_address=f"{reverse('joblogs:search')}?{urlencode(about)}",
        is_new=bool(
            group.first_image_id and group.job and group.job.image_id == group.first_image_id
        ),
        may_operate=may_operate,
    )
