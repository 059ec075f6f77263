"""Admin pages of bizzes: the list, the status page of one biz, and the URLs of the other pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from apps.access.admin.base import person_of
from apps.access.admin.read_only import ReadOnly
from apps.access.services import record
from apps.access.states import Role
from apps.configcenter.models import Configuration
from apps.projects.models import Project
from apps.requeststore.admin.forms import ReopenForm, TryOutForm
from apps.requeststore.admin.rebalances import RebalancePages
from apps.requeststore.admin.reextractions import ReextractionPages
from apps.requeststore.admin.requests import RequestPages, request_address
from apps.requeststore.admin.scope import REFUSALS, key_of, page_of, text_of
from apps.requeststore.engine.limits import MAX_TS
from apps.requeststore.engine.moments import ts_of
from apps.requeststore.errors import BadRequests
from apps.requeststore.models import ShardReport
from apps.requeststore.queries.accounting import BizAccounting, standings
from apps.requeststore.queries.stories import LABELS
from apps.requeststore.services.intake import read_requests, submit
from apps.requeststore.services.kind import KIND
from apps.requeststore.services.reopen import reopen_requests
from apps.requeststore.services.store import BoundBiz, shared_request_store

CSS = [
    "dashboard/dashboard.css",
    "configcenter/configcenter.css",
    "routing/routing.css",
    "seeds/seeds.css",
    "requeststore/requeststore.css",
]


@dataclass(frozen=True, slots=True)
class BizLine:
    """Row of the list of bizzes."""

    bound: BoundBiz
    project: Project
    standing: BizAccounting

    @property
    def key(self) -> str:
        """Return the biz as URLs name it: ``7.news``."""
        return key_of(self.bound)


@admin.register(ShardReport)
class BizAdmin(ReadOnly, RequestPages, RebalancePages, ReextractionPages):
    """Pages about bizzes, registered under the model of shard reports."""

    class Media:
        css = {"all": CSS}

    def get_urls(self) -> list[URLPattern]:
        """Return the URLs of all pages of the app but monitoring and the rule tester."""
        view = self.admin_site.admin_view
        get, post, both = require_GET, require_POST, require_http_methods(["GET", "HEAD", "POST"])
        pages: list[tuple[str, Any, str]] = [
            ("look-up", get(self.look_up_view), "look_up"),
            ("request/<int:number>", get(self.request_view), "request"),
            ("request/<int:number>/reopen", post(self.reopen_one_view), "reopen_one"),
            ("biz/<str:key>/", get(self.biz_view), "biz"),
            ("biz/<str:key>/requests", get(self.requests_view), "requests"),
            ("biz/<str:key>/try-out", both(self.try_out_view), "try_out"),
            ("biz/<str:key>/reopen", post(self.reopen_view), "reopen"),
            ("biz/<str:key>/rebalance", both(self.rebalance_view), "rebalance"),
            ("biz/<str:key>/rebalance/live", get(self.rebalance_live_view), "rebalance_live"),
            ("biz/<str:key>/extract", both(self.extract_view), "extract"),
            ("biz/<str:key>/extract/live", get(self.extract_live_view), "extract_live"),
            ("extract/<int:pk>/cancel", post(self.extract_cancel_view), "extract_cancel"),
            ("rebalance/<int:pk>/cancel", post(self.cancel_view), "rebalance_cancel"),
        ]
        return [
            *(path(where, view(do), name=f"requeststore_{name}") for where, do, name in pages),
            *super().get_urls(),
        ]

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> None:
        """Return None: shard reports have no change page."""

    def changelist_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Show the bizzes of all projects that the user may view."""
        bizzes = self.bizzes(request)
        context = self.page_context(
            request,
            _("Request groups"),
            lines=lines_of(bizzes),
            problems=self._problems(request),
            now=timezone.now(),
        )
        return TemplateResponse(request, "admin/requeststore/bizzes.html", context)

    def biz_view(self, request: HttpRequest, key: str) -> HttpResponse:
        """Show the status of one biz and its shards."""
        bound = self.bound(request, key)
        accounting = standings([bound.project_id], bound.name, by_flag=True)
        standing = accounting.get((bound.project_id, bound.name), BizAccounting())
        context = self.biz_context(
            request,
            bound,
            "overview",
            _("Overview"),
            standing=standing,
            flags=flag_lines(bound, standing),
            # As a dict: a template reads `.items` of a Counter as its count of the key "items".
            expiring=sorted((int(span), number) for span, number in standing.expiring.items()),
            configuration=Configuration.objects.filter(
                kind=KIND, project_id=bound.project_id
            ).first(),
            reopen_form=ReopenForm(None, bound.settings),
            now=timezone.now(),
        )
        return TemplateResponse(request, "admin/requeststore/biz.html", context)

    def try_out_view(self, request: HttpRequest, key: str) -> HttpResponse:
        """Submit one request by a form."""
        bound = self.bound(request, key, Role.OPERATOR)
        form = TryOutForm(request.POST if request.method == "POST" else None, bound.settings)
        if request.method == "POST" and form.is_valid():
            try:
                return self._hand_in(request, bound, form)
            except BadRequests as error:
                for name, texts in error.fields.items():
                    field = name if name in form.fields else None
                    form.add_error(field, " ".join(str(text) for text in texts))
            except REFUSALS as error:
                form.add_error(None, text_of(error))
        context = self.biz_context(request, bound, "try_out", _("Submit"), form=form)
        return TemplateResponse(request, "admin/requeststore/try_out.html", context)

    def _hand_in(self, request: HttpRequest, bound: BoundBiz, form: TryOutForm) -> HttpResponse:
        person = person_of(request)
        entities = read_requests(bound, [form.request()], "")
        by = f"admin:{'' if person is None else person.get_username()}"
        (number,) = submit(bound, entities, by=by).ids
        record(
            actor=person,
            action="requeststore.submit",
            obj=Project(pk=bound.project_id),
            project=bound.project_id,
            after={"biz": bound.name, "id": str(number)},
        )
        messages.success(request, gettext("Request stored and queued."))
        return HttpResponseRedirect(request_address(number))

    def reopen_view(self, request: HttpRequest, key: str) -> HttpResponse:
        """Reopen failed requests."""
        bound = self.bound(request, key, Role.OPERATOR)
        form = ReopenForm(request.POST, bound.settings)
        if not form.is_valid():
            text = " ".join(str(message) for texts in form.errors.values() for message in texts)
            messages.error(request, text)
            return HttpResponseRedirect(page_of(bound))
        try:
            done = reopen_requests(
                bound,
                actor=person_of(request),
                flag=form.cleaned_data["flag"],
                since=ts_of(form.cleaned_data["since"], 0),
                until=ts_of(form.cleaned_data["until"], MAX_TS),
            )
        except REFUSALS as error:
            return self.refused(request, error, page_of(bound))
        text = ngettext(
            "%(count)d request was reopened.", "%(count)d requests were reopened.", done.reopened
        ) % {"count": done.reopened}
        if done.more:
            text += " " + gettext("More requests match. Reopen again for the rest.")
        messages.success(request, text)
        return HttpResponseRedirect(page_of(bound))

    def _problems(self, request: HttpRequest) -> list[tuple[Project, str]]:
        """Return configurations that cannot be applied in this process, of the user's projects."""
        wrong = shared_request_store().problems
        if not wrong:
            return []
        seen = Project.objects.visible_to(request.user).filter(pk__in=wrong)
        return [(project, wrong[project.pk]) for project in seen]


def lines_of(bizzes: Sequence[BoundBiz]) -> list[BizLine]:
    """Return table rows with the accounting of each biz; a fixed number of queries."""
    ids = {bound.project_id for bound in bizzes}
    projects = Project.objects.in_bulk(ids)
    accounting = standings(ids)
    return [
        BizLine(
            bound,
            projects[bound.project_id],
            accounting.get((bound.project_id, bound.name), BizAccounting()),
        )
        for bound in bizzes
        if bound.project_id in projects
    ]


def flag_lines(bound: BoundBiz, standing: BizAccounting) -> list[tuple[int, str, int]]:
    """Return the flags of ended requests with their meanings and counts."""
    biz = bound.settings
    lines = []
    for flag, number in standing.ended.items():
        usual = LABELS["failed"] if flag == biz.failed_flag else LABELS["processed"]
        meaning = biz.flags.get(str(flag)) or (usual if flag in (1, biz.failed_flag) else "")
        lines.append((flag, str(meaning), number))
    return lines
