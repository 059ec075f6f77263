"""Page of a run's requests: list, groups of failures, and the run that makes failed ones again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django.views.decorators.http import require_POST

from apps.access.errors import DomainError
from apps.access.models import User
from apps.access.services import has_role
from apps.access.states import Role
from apps.datasets.engine.errors import BadItemQuery, DatasetError
from apps.datasets.engine.exports import FORMATS
from apps.datasets.engine.filters import FilterOp, ItemFilter, written
from apps.datasets.engine.item_types import Item, ItemQuery
from apps.datasets.models import DatasetRun
from apps.datasets.pages.item_form import Asked
from apps.datasets.pages.item_rows import is_web_address
from apps.datasets.pages.items import TIMEOUT_SECONDS, Heading, heading
from apps.datasets.queries.items import dataset_of_run
from apps.datasets.queries.kept_pages import pages_of_requests
from apps.datasets.queries.requests import (
    FailureGroup,
    RequestAccounting,
    data_of_requests,
    failure_groups,
    open_requests,
    request_accounting,
    shown_fields,
    shown_request,
)
from apps.datasets.services.request_retries import retry_requests
from apps.datasets.states import Kind
from apps.datasets.texts import text_of
from apps.jobs.models import Run
from yardkit.items.requests import RequestOutcome

# Columns of the table with their titles.
COLUMNS: Final = {
    "url": gettext_lazy("Address"),
    "outcome": gettext_lazy("Outcome"),
    "status": gettext_lazy("HTTP status"),
    "attempts": gettext_lazy("Attempts"),
    "elapsed_ms": gettext_lazy("Time"),
    "bytes": gettext_lazy("Size"),
    "depth": gettext_lazy("Depth"),
    "items": gettext_lazy("Items found"),
    "agent": gettext_lazy("Agent"),
}
OUTCOMES: Final = {
    RequestOutcome.SUCCESS.value: gettext_lazy("Succeeded"),
    RequestOutcome.FAILED.value: gettext_lazy("Failed"),
    RequestOutcome.REFUSED.value: gettext_lazy("Refused by robots.txt"),
}


@dataclass(slots=True)
class RequestLine:
    """A request in the table. ``parent``: parameters of the request of its parent page."""

    item: Item
    data: dict[str, Any]
    outcome: str
    address: str
    parent: str
    may_retry: bool
    # File and number of the kept page.
    page: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class GroupLine:
    """A group of failures; ``address``: parameters of its requests."""

    group: FailureGroup
    address: str


@dataclass(slots=True)
class RequestsView:
    """What the page shows."""

    asked: Asked
    accounting: RequestAccounting
    headings: list[tuple[Heading, Any]] = field(default_factory=list)
    outcomes: list[tuple[Any, str, bool]] = field(default_factory=list)
    rows: list[RequestLine] = field(default_factory=list)
    groups: list[GroupLine] = field(default_factory=list)
    total: int | None = None
    next: str = ""
    problem: str = ""


def run_requests(request: HttpRequest, pk: int) -> HttpResponse:
    """Page of a run's requests."""
    run = _run(request, pk)
    context = _context(request, run)
    parameters = context["view"].asked.address_to_redirect()
    if parameters is not None:
        return HttpResponseRedirect(f"{request.path}?{parameters}" if parameters else request.path)
    context |= admin.site.each_context(request)
    context["title"] = _("Requests of %(run)s") % {"run": run}
    return TemplateResponse(request, "datasets/requests.html", context)


def run_requests_live(request: HttpRequest, pk: int) -> HttpResponse:
    """Live part of the page."""
    context = _context(request, _run(request, pk))
    return TemplateResponse(request, "datasets/requests_live.html", context)


@require_POST
def retry_run_requests(request: HttpRequest, pk: int) -> HttpResponse:
    """Start a run that makes failed requests again: all, those of a list, or selected ones."""
    run = _run(request, pk)
    person = request.user
    if not isinstance(person, User) or not has_role(person, run.job.project_id, Role.OPERATOR):
        raise PermissionDenied
    asked = Asked(QueryDict(request.POST.get("query", "")), [], has_key=False)
    back = reverse("datasets:run-requests", args=[pk])
    chosen = request.POST.getlist("request") if "selected" in request.POST else None
    group = request.POST.get("group", "")
    query = ItemQuery(filters=(_is("group", group),)) if group else asked.selection()
    try:
        retried = retry_requests(
            run=run,
            actor=person,
            now=timezone.now(),
            query=ItemQuery() if chosen is not None else query,
            ids=chosen,
        )
    except DomainError as error:
        messages.error(request, str(error.text))
        return HttpResponseRedirect(back)
    except DatasetError as error:
        messages.error(request, text_of(error))
        return HttpResponseRedirect(back)
    messages.success(
        request,
        ngettext(
            "%(count)d failed request is made again by this run.",
            "%(count)d failed requests are made again by this run.",
            retried.requests,
        )
        % {"count": retried.requests},
    )
    for reason, count in retried.left_out.items():
        messages.warning(
            request, _("%(count)d not made again: %(reason)s") % {"count": count, "reason": reason}
        )
    return HttpResponseRedirect(reverse("dashboard:run", args=[retried.run.pk]))


def _run(request: HttpRequest, pk: int) -> Run:
    visible = Run.objects.visible_to(request.user).select_related("job__project", "requests_of")
    run = visible.filter(pk=pk).first()
    if run is None:
        raise Http404(_("This run does not exist, or you do not have permission to see it."))
    return run


def _context(request: HttpRequest, run: Run) -> dict[str, Any]:
    row = data_of_requests(run)
    return {
        "run": run,
        "data": row,
        "view": _view(request, run, row),
        "rest": f"/api/v1/runs/{run.pk}/requests",
        "formats": list(FORMATS),
        "fragment": f"{reverse('datasets:run-requests-live', args=[run.pk])}"
        f"?{request.GET.urlencode()}",
        "retries": list(run.request_retries.order_by("pk")[:10]),
        "may_retry": has_role(request.user, run.job.project_id, Role.OPERATOR),
    }


def _view(request: HttpRequest, run: Run, row: DatasetRun | None) -> RequestsView:
    fields = shown_fields(dataset_of_run(run, Kind.REQUESTS))
    asked = Asked(request.GET, fields, has_key=False, newest=run.is_active)
    view = RequestsView(asked, request_accounting(run, row), problem=asked.problem)
    if row is None or view.problem:
        return view
    view.headings = [(heading(name, asked), title) for name, title in COLUMNS.items()]
    view.outcomes = [(_("All"), asked.changed(filter=_without(asked, "outcome")), False)] + [
        (
            title,
            asked.changed(filter=[*_without(asked, "outcome"), f"outcome:equals:{value}"]),
            _is("outcome", value) in asked.filters,
        )
        for value, title in OUTCOMES.items()
    ]
    try:
        with open_requests(run, timeout_seconds=TIMEOUT_SECONDS) as reader:
            query = asked.query()
            page = reader.page(query)
            items = list(reversed(page.items)) if query.newest else page.items
            view.rows = [_line(item) for item in items]
            _add_pages(run, view.rows)
            view.total = reader.count(asked.selection())
            view.groups = [
                GroupLine(group, asked.changed(filter=[f"group:equals:{group.group}"], text=""))
                for group in failure_groups(reader)
            ]
    except BadItemQuery as error:
        view.problem = text_of(error)
    except DatasetError as error:
        view.problem = _("The requests cannot be read at the moment: %(why)s") % {
            "why": text_of(error)
        }
    else:
        if page.next:
            following = asked.parameters.copy()
            following["after"] = page.next
            view.next = following.urlencode()
    return view


def _add_pages(run: Run, rows: list[RequestLine]) -> None:
    urls = {row.data["id"]: str(row.data.get("url", "")) for row in rows if row.data.get("id")}
    pages = pages_of_requests(run, urls)
    for row in rows:
        row.page = pages.get(row.data.get("id", 0))


def _line(item: Item) -> RequestLine:
    data = shown_request(item.data)
    url = str(data.get("url", ""))
    parent = data.get("parent")
    filters = [f"id:equals:{parent}", f"_incarnation:equals:{item.incarnation}"]
    return RequestLine(
        item=item,
        data=data,
        outcome=str(OUTCOMES.get(data.get("outcome", ""), data.get("outcome", ""))),
        address=url if is_web_address(url) else "",
        parent=urlencode([("filter", text) for text in filters]) if parent else "",
        may_retry=bool(data.get("saved")),
    )


def _is(name: str, value: str) -> ItemFilter:
    return ItemFilter(name, FilterOp.EQUALS, value)


def _without(asked: Asked, name: str) -> list[str]:
    return [written(each) for each in asked.filters if each.field != name]
