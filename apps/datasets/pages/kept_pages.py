"""Pages of what a run's agents have kept: the list, one response, and the response itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.http import content_disposition_header
from django.utils.translation import gettext as _
from django.views.decorators.clickjacking import xframe_options_sameorigin
from django.views.decorators.http import require_POST

from apps.access.errors import DomainError
from apps.access.middleware import POLICY_HEADER
from apps.access.models import User
from apps.access.services import has_role
from apps.access.states import Role
from apps.datasets.engine.errors import DatasetError
from apps.datasets.engine.filters import FilterOp, ItemFilter
from apps.datasets.engine.item_types import ItemQuery
from apps.datasets.engine.page_rendering import (
    MAX_LINES,
    MAX_RENDERED_CHARACTERS,
    POLICY,
    difference,
    inert_html,
    is_cut,
)
from apps.datasets.engine.warc_records import HttpMessage, block_of, image_type, message_of
from apps.datasets.queries.items import dataset_of_run, open_reader
from apps.datasets.queries.kept_pages import (
    KeptPage,
    find_page,
    other_fetches,
    page_accounting,
    page_of,
    read_member,
)
from apps.datasets.services.replays import replay_run
from apps.datasets.states import Kind
from apps.datasets.texts import text_of
from apps.jobs.models import Run
from apps.jobs.states import FINAL, ReplayMissing

PER_PAGE: Final = 50
TIMEOUT_SECONDS: Final = 20.0
# Beyond it the source is cut; the download is whole.
SOURCE_CHARACTERS: Final = 1024 * 1024
TABS: Final = ("headers", "source", "rendered", "screenshot", "compare")
_HEADERS: Final = {
    POLICY_HEADER: POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-DNS-Prefetch-Control": "off",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "private, no-store",
}


@dataclass(slots=True)
class PageList:
    """Rows of the list; ``next``: parameters of the next part, "" at the end."""

    pages: list[KeptPage] = field(default_factory=list)
    next: str = ""
    problem: str = ""
    is_narrowed: bool = False


def kept_pages(request: HttpRequest, pk: int) -> HttpResponse:
    """List of the pages that are kept of a run."""
    run = _run(request, pk)
    context = admin.site.each_context(request)
    context |= {
        "title": _("Pages of %(run)s") % {"run": run},
        "run": run,
        "list": _list(request, run),
        "kept": page_accounting(run),
        "asked": request.GET,
        "may_replay": run.state in FINAL
        and has_role(request.user, run.job.project_id, Role.OPERATOR),
    }
    return TemplateResponse(request, "datasets/kept_pages.html", context)


@require_POST
def replay_pages(request: HttpRequest, pk: int) -> HttpResponse:
    """Queue a run on the kept pages of this one; that needs the role operator."""
    run = _run(request, pk)
    person = request.user
    if not isinstance(person, User) or not has_role(person, run.job.project_id, Role.OPERATOR):
        raise PermissionDenied
    missing = request.POST.get("missing", "")
    missing = missing if missing in ReplayMissing.values else ReplayMissing.FAIL
    try:
        replay = replay_run(run=run, actor=person, now=timezone.now(), missing=missing)
    except DomainError as error:
        messages.error(request, str(error.text))
        return HttpResponseRedirect(reverse("datasets:run-pages", args=[pk]))
    return HttpResponseRedirect(reverse("dashboard:run", args=[replay.pk]))


def kept_page(request: HttpRequest, pk: int, warc: str, record: int) -> HttpResponse:
    """One response: headers, source, rendered, screenshot, or its difference to another one."""
    run = _run(request, pk)
    tab = request.GET.get("tab", "headers")
    context = admin.site.each_context(request)
    context |= {"run": run, "tab": tab if tab in TABS else "headers"}
    try:
        page = _page(run, warc, record)
        context |= {"title": page.url, "page": page, "of_request": _request_of(page)}
        context |= _shown(request, run, page, context["tab"])
    except DatasetError as error:
        context |= {"title": _("Kept page"), "problem": text_of(error)}
    return TemplateResponse(request, "datasets/kept_page.html", context)


@xframe_options_sameorigin
def kept_content(request: HttpRequest, pk: int, warc: str, record: int, what: str) -> HttpResponse:
    """Response of a kept page: rendered, its screenshot, or the body to save.

    Only the frame of ``kept_page`` shows it: opened by itself it would look like a page of this
    server.
    """
    run = _run(request, pk)
    if what == "rendered" and request.headers.get("Sec-Fetch-Dest", "iframe") != "iframe":
        return _answer(_("A kept page is shown inside its own page only."), "text/plain", 403)
    try:
        page = _page(run, warc, record)
        if what == "screenshot":
            member = read_member(
                run.job.project_id, page, page.screenshot_offset, page.screenshot_length
            )
            image = block_of(member)
            return _answer(image, image_type(image) or "application/octet-stream")
        response = _response(run, page)
    except DatasetError as error:
        return _answer(text_of(error), "text/plain", 404)
    if what == "rendered":
        kind = image_type(response.content)
        if kind:
            return _answer(response.content, kind)
        return _answer(inert_html(response.text), "text/html")
    answer = _answer(response.body, "application/octet-stream")
    name = f"page-{page.run}-{page.record}"
    answer.headers["Content-Disposition"] = (
        content_disposition_header(as_attachment=True, filename=name) or "attachment"
    )
    return answer


def _answer(content: bytes | str, content_type: str, status: int = 200) -> HttpResponse:
    kind = f"{content_type}; charset=utf-8" if content_type.startswith("text/") else content_type
    answer = HttpResponse(content, content_type=kind, status=status)
    for name, value in _HEADERS.items():
        answer.headers[name] = value
    return answer


def _run(request: HttpRequest, pk: int) -> Run:
    visible = Run.objects.visible_to(request.user).select_related("job__project")
    return get_object_or_404(visible, pk=pk)


def _page(run: Run, warc: str, record: int) -> KeptPage:
    page = find_page(run, warc, record)
    if page is None:
        raise Http404(_("This page is not kept, or was deleted."))
    return page


def _response(run: Run, page: KeptPage) -> HttpMessage:
    return message_of(read_member(run.job.project_id, page, page.offset, page.length))


# --- the list -------------------------------------------------------------------------------------


def _list(request: HttpRequest, run: Run) -> PageList:
    found = PageList()
    dataset = dataset_of_run(run, Kind.PAGES)
    filters = _filters(request)
    found.is_narrowed = bool(filters)
    if dataset is None:
        return found
    query = ItemQuery(
        filters=tuple(filters), limit=PER_PAGE, after=request.GET.get("after", "")[:500]
    )
    try:
        with open_reader(dataset, [run.pk], timeout_seconds=TIMEOUT_SECONDS) as reader:
            part = reader.page(query)
        found.pages = [page_of(item) for item in part.items]
    except DatasetError as error:
        found.problem = text_of(error)
    else:
        if part.next:
            following = request.GET.copy()
            following["after"] = part.next
            found.next = following.urlencode()
    return found


def _filters(request: HttpRequest) -> list[ItemFilter]:
    """Return the conditions of the form; what is no number is not used."""
    filters = []
    url = request.GET.get("url", "").replace("\0", "")[:500]
    if url:
        filters.append(ItemFilter("url", FilterOp.CONTAINS, url))
    status = request.GET.get("status", "")
    if status == "failed":
        filters.append(ItemFilter("status", FilterOp.AT_LEAST, 400))
    elif status.isascii() and status.isdigit() and len(status) == 3:
        filters.append(ItemFilter("status", FilterOp.EQUALS, int(status)))
    for name in ("request", "agent"):
        value = request.GET.get(name, "").replace("\0", "")[:100]
        if value:
            filters.append(ItemFilter(name, FilterOp.EQUALS, value))
    return filters


def _request_of(page: KeptPage) -> str:
    """Return the parameters by which the list of requests shows the request of a page."""
    wanted = [f"id:equals:{page.request}", f"url:equals:{page.url}"]
    return urlencode([("filter", text) for text in wanted]) if page.request else ""


# --- one page -------------------------------------------------------------------------------------


def _shown(request: HttpRequest, run: Run, page: KeptPage, tab: str) -> dict[str, Any]:
    response = _response(run, page)
    shown: dict[str, Any] = {
        "response": response,
        "can_render": image_type(response.content) or (page.is_html and response.is_text),
    }
    if tab == "headers" and page.request_length:
        place = page.offset - page.request_length
        member = read_member(run.job.project_id, page, place, page.request_length)
        sent = message_of(member)
        shown |= {"sent": sent, "sent_body": sent.text[:SOURCE_CHARACTERS]}
    elif tab == "source" and response.is_text:
        shown |= {
            "source": response.text[:SOURCE_CHARACTERS],
            "source_cut": len(response.text) > SOURCE_CHARACTERS,
        }
    elif tab == "rendered":
        shown["rendered_cut"] = len(response.text) > MAX_RENDERED_CHARACTERS
    elif tab == "compare":
        shown |= _comparison(request, run, page, response)
    return shown


def _comparison(
    request: HttpRequest, run: Run, page: KeptPage, response: HttpMessage
) -> dict[str, Any]:
    fetches = other_fetches(run, page)
    wanted = request.GET.get("with", "")
    other = next((fetch for fetch in fetches if fetch.id == wanted), None)
    if other is None and not wanted and fetches:
        other = fetches[0]
    shown: dict[str, Any] = {"fetches": fetches, "other": other}
    if other is None:
        return shown
    old, new = _response(run, other).text, response.text
    if page.at < other.at:
        old, new = new, old
    shown["difference"] = difference(old, new)
    shown["difference_cut"] = is_cut(old) or is_cut(new)
    shown["most_lines"] = MAX_LINES
    return shown
