"""Page "Test rule": results of a rule on sample pages, compared with the active rule.

It stores and downloads sample pages on an editor's request, and changes no rule.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final
from urllib.parse import urlencode

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext as _

from apps.access.admin.base import ProjectScopedAdmin, person_of, projects_of
from apps.access.admin.confirm import ask_first
from apps.access.admin.forms import add_refusal
from apps.access.admin.read_only import ReadOnly
from apps.access.errors import DomainError
from apps.access.states import Role
from apps.projects.models import Project
from apps.requeststore.admin.tester_form import DOWNLOAD, KEEP, TEMPLATES, TesterForm
from apps.requeststore.admin.tester_shown import shown_problems, shown_trial
from apps.requeststore.daemon.work import download_of
from apps.requeststore.engine.entity import Entity, decode_entity
from apps.requeststore.engine.errors import RequestStoreError, RequestStoreUnavailable
from apps.requeststore.extraction import ResponsePage
from apps.requeststore.models import SamplePage
from apps.requeststore.services.rule_tests import (
    read_definition,
    rule_named,
    try_rule,
    write_definition,
)
from apps.requeststore.services.sample_pages import MAX_SAMPLES, drop_page, fetch_page, keep_page
from apps.requeststore.services.store import BoundBiz, shared_request_store

CSS: Final = [
    "dashboard/dashboard.css",
    "configcenter/configcenter.css",
    "routing/routing.css",
    "routing/explain.css",
    "requeststore/tester.css",
]
VIEW: Final = "admin:requeststore_samplepage_changelist"


@admin.register(SamplePage)
class SamplePageAdmin(ReadOnly, ProjectScopedAdmin):
    """One page for a biz and a rule, registered under the model of sample pages."""

    class Media:
        css: ClassVar[dict[str, Any]] = {"all": CSS}

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> None:
        """Return None: sample pages have no change page."""

    def changelist_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Show the tester: ``?biz=7.news&rule=article&sample=3``, or
        ``?biz=7.news&request=123``.
        """
        if not self.has_view_permission(request):
            raise PermissionDenied
        context = {
            **self.admin_site.each_context(request),
            "title": _("Test extraction rule"),
            "media": self.media,
        }
        try:
            choice = _Choice(request)
        except RequestStoreUnavailable as error:
            context["problem"] = str(error)
            return TemplateResponse(request, "admin/requeststore/tester.html", context)
        context |= {"choice": choice, "subtitle": choice.title}
        if choice.bound is not None:
            answer = _answer(request, choice, choice.bound, context)
            if answer is not None:
                return answer
        return TemplateResponse(request, "admin/requeststore/tester.html", context)


class _Choice:
    """Biz and rule of the page, and the alternatives offered."""

    def __init__(self, request: HttpRequest) -> None:
        given = request.POST if request.method == "POST" else request.GET
        projects = projects_of(request, Role.VIEWER)
        seen = [biz for biz in shared_request_store().bizzes() if biz.project_id in projects]
        # Bizzes are cached for half a second; a project may have been deleted since.
        names = Project.objects.in_bulk({biz.project_id for biz in seen})
        self.bizzes = [biz for biz in seen if biz.project_id in names]
        self.bizzes.sort(key=lambda each: (each.project_id, each.name))
        self.options = [(_id(biz), f"{names[biz.project_id]} / {biz.name}") for biz in self.bizzes]
        wanted = given.get("biz", "")
        chosen = next((biz for biz in self.bizzes if _id(biz) == wanted), None)
        self.bound: BoundBiz | None = chosen or next(iter(self.bizzes), None)
        self.project = names.get(self.bound.project_id) if self.bound is not None else None
        # Rule and page URL of the request in ``?request=``.
        self.entity = _entity(self.bound, given.get("request", ""))
        rules = self.bound.settings.rules if self.bound is not None else {}
        self.rules = sorted(rules)
        rule_name = given.get("rule", "").strip()[:64]
        if not rule_name and self.entity is not None:
            rule_name = rule_named(rules, self.entity.rule)
        self.rule = rule_name or (rule_named(rules, "") if not self.rules else self.rules[0])
        self.is_new = self.rule not in rules
        self.may_keep = self.bound is not None and self.bound.project_id in projects_of(
            request, Role.EDITOR
        )

    @property
    def biz_id(self) -> str:
        return _id(self.bound) if self.bound is not None else ""

    @property
    def title(self) -> str | None:
        return f"{self.project} / {self.bound.name}" if self.bound is not None else None


def _id(bound: BoundBiz) -> str:
    return f"{bound.project_id}.{bound.name}"


def _entity(bound: BoundBiz | None, number: str) -> Entity | None:
    """Return the data of a stored request of the biz; None for any other ID."""
    if bound is None or not (number.isascii() and number.isdigit() and len(number) < 19):
        return None
    try:
        stored = shared_request_store().find(int(number), bound.project_id, bound.name)
        return decode_entity(stored.request.data) if stored is not None else None
    except RequestStoreError:
        # An unreachable store only leaves the URL field empty.
        return None


def _address(entity: Entity | None) -> str:
    if entity is None:
        return ""
    return download_of(entity, headers={}, timeout_seconds=1.0).url


def _answer(
    request: HttpRequest, choice: _Choice, bound: BoundBiz, context: dict[str, Any]
) -> HttpResponse | None:
    samples = list(_samples(bound).filter(rule__in={choice.rule, ""}).defer("body"))
    given = request.POST if request.method == "POST" else request.GET
    active = bound.settings.rules.get(choice.rule)
    initial = {
        "definition": TEMPLATES["html"] if active is None else write_definition(active),
        "sample": given.get("sample", ""),
        "url": _address(choice.entity),
    }
    form = TesterForm(initial=initial, samples=samples)
    if request.method == "POST":
        form = TesterForm(request.POST, request.FILES, samples=samples)
        if "drop" in request.POST:
            return _dropped(request, choice, bound)
        if form.is_valid():
            try:
                answer = _done(request, choice, bound, form, context)
            except DomainError as error:
                add_refusal(form, error)
            else:
                if answer is not None:
                    return answer
    context |= {"form": form, "samples": samples, "most": MAX_SAMPLES}
    return None


def _samples(bound: BoundBiz) -> Any:
    return SamplePage.objects.filter(project_id=bound.project_id, biz=bound.name)


def _done(
    request: HttpRequest,
    choice: _Choice,
    bound: BoundBiz,
    form: TesterForm,
    context: dict[str, Any],
) -> HttpResponse | None:
    """Run the test, after storing or downloading the page where that was requested."""
    definition = read_definition(form.cleaned_data["definition"])
    mode = form.cleaned_data["what"]
    pages: list[ResponsePage | SamplePage]
    if mode in (KEEP, DOWNLOAD):
        if not choice.may_keep or choice.project is None:
            raise PermissionDenied
        downloads = mode == DOWNLOAD
        page = (
            fetch_page(project=choice.project, biz=bound.settings, url=form.cleaned_data["url"])
            if downloads
            else form.page()
        )
        sample = keep_page(
            project=choice.project,
            biz=bound.name,
            rule=choice.rule,
            page=page,
            fetched=downloads,
            actor=person_of(request),
        )
        context["kept"] = sample
        pages = [sample]
    elif form.has_page():
        pages = [form.page()]
    else:
        pages = form.chosen(_samples(bound), choice.rule)
    tested = try_rule(
        active=bound.settings.rules, name=choice.rule, definition=definition, pages=pages
    )
    context |= {
        "tested": tested,
        "rule_problems": shown_problems(tested.problems, definition, choice.rule),
        "trials": [shown_trial(trial) for trial in tested.trials],
    }
    return None


def _dropped(request: HttpRequest, choice: _Choice, bound: BoundBiz) -> HttpResponse:
    if not choice.may_keep:
        raise PermissionDenied
    number = request.POST["drop"]
    known = number.isascii() and number.isdigit() and len(number) < 19
    sample = _samples(bound).filter(pk=int(number)).first() if known else None
    back = f"{reverse(VIEW)}?{urlencode({'biz': choice.biz_id, 'rule': choice.rule})}"
    if sample is not None:
        page = ask_first(
            request,
            verb=_("Delete"),
            loss=_("The sample page will be deleted permanently."),
            ids=[sample.pk],
            names=[sample],
            back=back,
        )
        if page is not None:
            return page
        drop_page(sample=sample, actor=person_of(request))
        messages.success(request, _("Sample page deleted."))
    return HttpResponseRedirect(back)
