"""Requests in the admin: look-up by ID, history, lists by flag and time."""

from __future__ import annotations

import json
from typing import Any, Final

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from apps.access.admin.base import person_of, projects_of
from apps.access.admin.lists import page_links
from apps.access.states import Role
from apps.projects.models import Project
from apps.requeststore.admin.forms import RequestFilter, RequestLookUpForm
from apps.requeststore.admin.scope import REFUSALS, BizScope, text_of
from apps.requeststore.engine.biz import DestinationKind
from apps.requeststore.engine.errors import BadSetting
from apps.requeststore.engine.flags import is_own
from apps.requeststore.engine.limits import MAX_ID, MAX_TS
from apps.requeststore.engine.moments import ts_of
from apps.requeststore.queries.accounting import slices_around
from apps.requeststore.queries.given_records import records_given
from apps.requeststore.queries.stories import LABELS, STEPS, TONES, made_by, row_of, story_of
from apps.requeststore.services.reopen import reopen_requests
from apps.requeststore.services.request_pages import page_of, read_cursor
from apps.requeststore.services.store import BoundBiz, FoundRequest, shared_request_store
from apps.requeststore.sinks.factory import queue_of_records, records_name, table_of

PER_PAGE: Final = 50


class RequestPages(BizScope):
    """Views of requests: viewers look them up, operators also see their data and reopen them."""

    # --- lists ----------------------------------------------------------------------------------

    def requests_view(self, request: HttpRequest, key: str) -> HttpResponse:
        """List requests of a biz by flag and time, newest first, read from the store."""
        bound = self.bound(request, key)
        form = RequestFilter(request.GET, bound.settings)
        rows: list[dict[str, Any]] = []
        problem = ""
        following = None
        if form.is_valid():
            request_store = shared_request_store()
            try:
                requests_page, following = page_of(
                    request_store,
                    [bound],
                    flag=form.cleaned_data["flag"],
                    since=ts_of(form.cleaned_data["since"], 0),
                    until=ts_of(form.cleaned_data["until"], MAX_TS),
                    after=_after(request.GET.get("after", "")),
                    limit=PER_PAGE,
                )
            except REFUSALS as error:
                requests_page, problem = [], text_of(error)
            rows = [_shown(request_found, request_store.now()) for request_found in requests_page]
        context = self.biz_context(
            request,
            bound,
            "requests",
            _("Requests"),
            form=form,
            rows=rows,
            problem=problem,
            pages=page_links(request, "after", following),
            filtered=[
                (name, request.GET[name])
                for name in ("flag", "since", "until")
                if name in request.GET
            ],
        )
        return TemplateResponse(request, "admin/requeststore/requests.html", context)

    # --- one request ----------------------------------------------------------------------------

    def look_up_view(self, request: HttpRequest) -> HttpResponse:
        """Find a request by ID in all visible bizzes."""
        self.expect_view(request)
        form = RequestLookUpForm(request.GET if "id" in request.GET else None)
        if form.is_bound and form.is_valid():
            number = int(form.cleaned_data["id"])
            if 0 < number <= MAX_ID:
                return HttpResponseRedirect(request_address(number))
            form.add_error("id", _("This ID is too large."))
        context = self.page_context(request, _("Find request"), form=form)
        return TemplateResponse(request, "admin/requeststore/look_up.html", context)

    def request_view(self, request: HttpRequest, number: int) -> HttpResponse:
        """Show status, data and history of one request."""
        problem = ""
        try:
            request_found = self._found(request, number)
        except REFUSALS as error:
            request_found, problem = None, text_of(error)
        if request_found is None:
            return self._gone(request, number, problem)
        bound = request_found.bound
        may_operate = bound.project_id in projects_of(request, Role.OPERATOR)
        story = story_of(
            request_found.request,
            bound.settings,
            project_id=bound.project_id,
            version=bound.version,
            place=request_found.place,
            whole=may_operate,
            now=shared_request_store().now(),
        )
        gave = None
        if may_operate:
            gave = records_given(request_found.request, bound.settings, project_id=bound.project_id)
        context = self.biz_context(
            request,
            bound,
            "requests",
            _("Request"),
            story=story,
            state=LABELS[story["state"]],
            tone=TONES[story["state"]],
            steps=[(step, STEPS.get(step["kind"], step["kind"])) for step in story["steps"]],
            result=_pretty(story["result"]),
            meta=_pretty(story["data"].get("meta")),
            records=_records(bound),
            gave=gave,
            gave_text=_pretty(gave.records) if gave is not None else "",
            may_reopen=may_operate and is_own(request_found.request.flag),
        )
        return TemplateResponse(request, "admin/requeststore/request.html", context)

    def reopen_one_view(self, request: HttpRequest, number: int) -> HttpResponse:
        """Reopen one request."""
        back = request_address(number)
        try:
            request_found = self._found(request, number)
            if request_found is None:
                raise Http404
            bound = self.bound(
                request,
                f"{request_found.bound.project_id}.{request_found.bound.name}",
                Role.OPERATOR,
            )
            done = reopen_requests(bound, actor=person_of(request), ids=[number])
        except REFUSALS as error:
            return self.refused(request, error, back)
        if done.reopened:
            messages.success(request, gettext("Request reopened and queued."))
        else:
            text = gettext("Only requests that have ended and not expired can be reopened.")
            messages.error(request, text)
        return HttpResponseRedirect(back)

    def _found(self, request: HttpRequest, number: int) -> FoundRequest | None:
        self.expect_view(request)
        projects = projects_of(request, Role.VIEWER)
        request_found = shared_request_store().find(number) if 0 < number <= MAX_ID else None
        return (
            request_found
            if request_found is not None and request_found.bound.project_id in projects
            else None
        )

    def _gone(self, request: HttpRequest, number: int, problem: str) -> HttpResponse:
        """Describe an ID that is in no store: when it was made, and the totals of that time."""
        made_at, worker = made_by(number) if 0 < number <= MAX_ID else (None, None)
        projects = Project.objects.visible_to(request.user).in_bulk()
        slices = [] if made_at is None else slices_around(list(projects), made_at)
        context = self.page_context(
            request,
            _("Request"),
            number=number,
            problem=problem,
            made_at=made_at,
            worker=worker,
            slices=[(piece, projects[piece.project_id]) for piece in slices],
            form=RequestLookUpForm({"id": str(number)}),
        )
        status = 503 if problem else 404
        return TemplateResponse(request, "admin/requeststore/gone.html", context, status=status)


def request_address(number: int) -> str:
    """Return the URL of the history page of a request."""
    return reverse("admin:requeststore_request", args=[number])


def _shown(found: FoundRequest, now: int) -> dict[str, Any]:
    bound = found.bound
    row = row_of(found.request, bound.settings, project_id=bound.project_id, now=now)
    label, tone = LABELS[row["state"]], TONES[row["state"]]
    return {**row, "label": label, "tone": tone, "result": _short(row["result"])}


def _records(bound: BoundBiz) -> tuple[object, str]:
    """Return the kind and the name of the destination of this biz's records."""
    try:
        return _records_at(bound)
    except BadSetting as error:
        return _("table"), str(error)


def _records_at(bound: BoundBiz) -> tuple[object, str]:
    records, project, name = bound.settings.records, bound.project_id, bound.name
    match records.to:
        case DestinationKind.TABLE:
            return _("table"), table_of(project, name, records)
        case DestinationKind.JSON_LINES:
            return _("JSON lines files"), records_name(name, records)
        case DestinationKind.QUEUE:
            return _("queue"), queue_of_records(project, name, records)
        case DestinationKind.DATASET:
            return _("dataset"), name
        case _:
            return _("not stored"), ""


def _pretty(value: Any) -> str:
    if value in (None, "", {}):
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def _short(value: Any) -> str:
    text = "" if value is None else json.dumps(value, ensure_ascii=False)
    return text[:160]


def _after(text: str) -> tuple[int, int] | None:
    try:
        return read_cursor(text)
    except ValueError:
        return None
