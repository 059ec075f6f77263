"""Admin of alert rules: list with states, form with preview, mute and test buttons."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Final
from urllib.parse import urlencode

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, pgettext
from django.views.decorators.http import require_GET, require_POST

from apps.access.admin import ProjectScopedAdmin, ask_first
from apps.access.admin.base import person_of, projects_of
from apps.access.admin.read_only import ReadOnly
from apps.access.errors import DomainError
from apps.access.models import User
from apps.access.states import Role
from apps.alerts.admin.rule_form import RuleForm, initial_of
from apps.alerts.admin.rule_series import PLATFORM, series_page, series_shown
from apps.alerts.admin.styles import CSS, SEVERITY_TONES
from apps.alerts.engine.events import find_source
from apps.alerts.engine.rule_parser import rule_of, rulebook
from apps.alerts.engine.rules import Rule, find_builtin
from apps.alerts.engine.validation import rule_problems
from apps.alerts.models import RuleMute
from apps.alerts.queries.recipients import recipient_choices
from apps.alerts.queries.rules import KIND, RuleState, rule_statuses
from apps.alerts.services.mutes import mute_rule, unmute_rule
from apps.alerts.services.notices import send_test
from apps.alerts.services.preview import preview
from apps.alerts.services.recipients import channels_named
from apps.alerts.services.rule_versions import active_data, entry_named, remove_rule, save_rule
from apps.alerts.services.texts import fact_texts, span_text, when_text
from apps.alerts.states import Severity
from apps.projects.admin.project_choice import number_in
from apps.projects.models import Project
from apps.queuestats.models import Series

MUTES: Final = (60, 240, 1440, 10080)
_TONES: Final = {
    RuleState.FIRING: "danger",
    RuleState.PENDING: "warning",
    RuleState.OK: "success",
    RuleState.UNKNOWN: "info",
    RuleState.OFF: "info",
}
_ORDER: Final = tuple(RuleState)
MOST_NAMES: Final = 300


@dataclass(frozen=True, slots=True)
class EditedRule:
    """Rule being edited in the form.

    ``base`` is the built-in rule that it changes; what that rule watches is fixed. ``number`` is
    the active version of the configuration, 0 if there is none.
    """

    project_id: int | None
    name: str
    rule: Rule | None
    base: Rule | None
    is_stored: bool
    number: int
    newest: int
    quiet_hours: frozenset[str]


@admin.register(RuleMute)
class RuleAdmin(ReadOnly, ProjectScopedAdmin):
    """Pages over rules stored in configurations; there is no row per rule."""

    class Media:
        css: ClassVar = {"all": CSS}

    def get_urls(self) -> list[URLPattern]:
        """Add the URLs of the form, the series page and the buttons."""
        view = self.admin_site.admin_view

        def post(page: Callable[..., HttpResponse]) -> Any:
            return view(require_POST(page))

        return [
            path("live", view(require_GET(self.live_view)), name="alerts_rules_live"),
            path("series", view(require_GET(self.series_view)), name="alerts_rule_series"),
            path("rule/", view(self.rule_view), name="alerts_rule"),
            path("mute", post(self.mute_view), name="alerts_mute"),
            path("unmute", post(self.unmute_view), name="alerts_unmute"),
            path("test", post(self.test_view), name="alerts_rule_test"),
            path("remove", post(self.remove_view), name="alerts_rule_remove"),
            *super().get_urls(),
        ]

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> None:
        """Answer 404: rules are in configurations, and a mute has no page of its own."""
        raise Http404

    # --- the list -------------------------------------------------------------------------------

    def changelist_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """List every active rule, most severe state first."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        context = {
            **self.admin_site.each_context(request),
            **self._list(request),
            "title": _("Alert rules"),
            "media": self.media,
            "mutes": [(mute, span_text(mute * 60)) for mute in MUTES],
            "may_add": bool(projects_of(request, Role.EDITOR)),
            "configurations": reverse("admin:configcenter_configuration_changelist")
            + f"?kind={KIND}",
        }
        return TemplateResponse(request, "admin/alerts/rules.html", context)

    def live_view(self, request: HttpRequest) -> HttpResponse:
        """Return the part of the list that refreshes itself."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        return TemplateResponse(request, "admin/alerts/rules_live.html", self._list(request))

    def series_view(self, request: HttpRequest) -> HttpResponse:
        """Show a chart of one series that a rule watches."""
        context = {**self.admin_site.each_context(request), **series_shown(request)}
        return TemplateResponse(
            request, "admin/alerts/rule_series.html", context | {"media": self.media}
        )

    def _list(self, request: HttpRequest) -> dict[str, Any]:
        person = person_of(request)
        project = number_in(request.GET.get("project", ""))
        rows = [] if person is None else rule_statuses(person, now=timezone.now(), project=project)
        rows.sort(key=lambda row: (_ORDER.index(row.state), row.rule.name, row.project or 0))
        names = dict(Project.objects.visible_to(request.user).values_list("pk", "name"))
        known = projects_of(request, Role.VIEWER)
        operated = projects_of(request, Role.OPERATOR)
        edited = projects_of(request, Role.EDITOR)
        lines = [
            {
                "row": row,
                "title": str(row.rule.title or row.rule.name),
                "scope": _("built in") if row.rule.builtin else _scope(row.project, names),
                "watches": _watches(row.rule),
                "condition": when_text(row.rule.source, row.rule.when.shown()),
                "severity": Severity(row.rule.severity).label,
                "severity_tone": SEVERITY_TONES[row.rule.severity],
                "state": _state_text(row.state),
                "tone": _TONES[row.state],
                "key": f"{_key(row.project)}|{row.rule.name}",
                "edit": _edit_address(row.project, row.rule.name),
                "incidents": f"{reverse('admin:alerts_incident_changelist')}?"
                + urlencode({"q": row.rule.name}),
                # Names of platform channels are shown only to users with a role on the platform.
                "tells": row.rule.tell if row.project in known else (),
                "chart": series_page(row.rule.series, row.of, row.label) if row.watched else "",
                "may_mute": row.project in operated,
                "may_edit": row.project in edited,
            }
            for row in rows
        ]
        counts = [(state, sum(row.state == state for row in rows)) for state in RuleState]
        return {
            "lines": lines,
            "counts": [(_state_text(state), _TONES[state], number) for state, number in counts],
            "projects": sorted(names.items(), key=lambda each: each[1]),
            "project": project,
        }

    # --- one rule -------------------------------------------------------------------------------

    def rule_view(self, request: HttpRequest) -> HttpResponse:
        """Show the form for ``?project=7&name=late`` (``project=platform`` for a platform rule).

        Includes a preview of the incidents the rule would have opened.
        """
        scope = request.GET.get("project", "")
        if not scope:
            return self._choose(request)
        edited = _edited(self._editable(request, scope), request.GET.get("name", ""))
        context = {
            **self.admin_site.each_context(request),
            **_shown_with(edited),
            "title": _("Rule %(name)s") % {"name": edited.name} if edited.name else _("New rule"),
            "media": self.media,
            "key": f"{scope}|{edited.name}",
        }
        initial = {} if edited.rule is None else initial_of(edited.rule)
        data = request.POST if request.method == "POST" else None
        form = RuleForm(
            data,
            initial=initial,
            quiet_hours=edited.quiet_hours,
            recipients=recipient_choices(edited.project_id),
            base=edited.base,
        )
        if data is not None and form.is_valid():
            made = form.entry(edited.base)
            problems = rule_problems(made, edited.quiet_hours)
            form.refuse(
                {problem.place: problem.text for problem in problems if not problem.warning}
            )
            if form.is_valid() and "look" in data:
                context |= _preview(rule_of(made), edited.project_id)
            elif form.is_valid():
                saved = self._save(request, form, made, edited)
                if saved is not None:
                    return saved
        return TemplateResponse(request, "admin/alerts/rule.html", context | {"form": form})

    def _choose(self, request: HttpRequest) -> HttpResponse:
        """Ask for the project, or the platform, of a new rule."""
        edited = projects_of(request, Role.EDITOR)
        if not edited:
            raise PermissionDenied
        rows = Project.objects.visible_to(request.user, Role.EDITOR).order_by("name")
        choices = [(str(row.pk), row.name) for row in rows]
        if None in edited:
            choices.insert(0, (PLATFORM, _("the platform, for all projects")))
        context = {
            **self.admin_site.each_context(request),
            "title": _("New rule"),
            "choices": choices,
            "media": self.media,
        }
        return TemplateResponse(request, "admin/alerts/rule_scope.html", context)

    def _save(
        self, request: HttpRequest, form: RuleForm, entry: dict[str, Any], edited: EditedRule
    ) -> HttpResponse | None:
        try:
            saved = save_rule(
                project_id=edited.project_id,
                entry=entry,
                actor=person_of(request),
                now=timezone.now(),
                instead_of=edited.name if edited.is_stored else "",
                based_on=number_in(request.POST.get("based_on", "")),
                note=form.cleaned_data["note"],
            )
        except DomainError as error:
            form.add_error(None, error.text)
            return None
        values = {"name": entry["name"], "number": saved.version.number}
        messages.success(request, _("Rule %(name)s saved and active: version %(number)d.") % values)
        return HttpResponseRedirect(reverse("admin:alerts_rulemute_changelist"))

    # --- buttons --------------------------------------------------------------------------------

    def mute_view(self, request: HttpRequest) -> HttpResponse:
        """Mute a rule's notifications for the chosen time."""
        project_id, name, actor = self._meant(request, Role.OPERATOR)
        minutes = min(number_in(request.POST.get("minutes", "")) or 0, 10**6)

        def do() -> str:
            now = timezone.now()
            until = now + timedelta(minutes=minutes)
            mute_rule(rule=name, project_id=project_id, until=until, actor=actor, now=now)
            values = {"name": name, "time": span_text(minutes * 60)}
            return _("%(name)s is muted for %(time)s.") % values

        return self._done(request, do)

    def unmute_view(self, request: HttpRequest) -> HttpResponse:
        project_id, name, actor = self._meant(request, Role.OPERATOR)

        def do() -> str:
            unmute_rule(rule=name, project_id=project_id, actor=actor)
            return _("%(name)s is no longer muted.") % {"name": name}

        return self._done(request, do)

    def remove_view(self, request: HttpRequest) -> HttpResponse:
        """Remove a rule from the configuration after confirmation."""
        project_id, name, actor = self._meant(request, Role.EDITOR)
        confirmation = ask_first(
            request,
            verb=_("Remove rule"),
            loss=_("The rule no longer opens incidents. Earlier versions still contain it."),
            ids=[f"{project_id} {name}"],
            names=[name],
            back=reverse("admin:alerts_rulemute_changelist"),
            final=False,
        )
        if confirmation is not None:
            return confirmation

        def do() -> str:
            remove_rule(project_id=project_id, name=name, actor=actor, now=timezone.now())
            return _("Rule %(name)s removed.") % {"name": name}

        return self._done(request, do)

    def test_view(self, request: HttpRequest) -> HttpResponse:
        """Send a test through every channel that the rule names."""
        project_id, name, actor = self._meant(request, Role.EDITOR)
        rows = rule_statuses(actor, now=timezone.now())
        row = next((r for r in rows if r.rule.name == name and r.project == project_id), None)
        if row is None:
            raise Http404
        names = [*row.rule.tell, *(channel for step in row.rule.escalate for channel in step.tell)]
        # Platform channels also serve other projects: only platform editors may test them.
        channels = [
            channel
            for channel in channels_named(project_id, names).values()
            if channel.project_id == project_id or channel.person_id is not None
        ]

        def do() -> str:
            sent = len([send_test(channel=c, actor=actor, now=timezone.now()) for c in channels])
            text = ngettext("%(count)d test queued.", "%(count)d tests queued.", sent)
            return text % {"count": sent}

        return self._done(request, do)

    # --- what they share ------------------------------------------------------------------------

    def _editable(self, request: HttpRequest, scope: str) -> int | None:
        project_id = None if scope == PLATFORM else number_in(scope)
        if scope != PLATFORM:
            rows = Project.objects.visible_to(request.user).filter(pk=project_id or 0)
            if not rows.exists():
                raise Http404
        if project_id not in projects_of(request, Role.EDITOR):
            raise PermissionDenied
        return project_id

    def _meant(self, request: HttpRequest, role: Role) -> tuple[int | None, str, User]:
        scope, _sign, name = request.POST.get("rule", "").partition("|")
        project_id = None if scope == PLATFORM else number_in(scope)
        actor = person_of(request)
        if actor is None or not name or (project_id is None and scope != PLATFORM):
            raise Http404
        if project_id not in projects_of(request, role):
            raise PermissionDenied
        return project_id, name[:64], actor

    def _done(self, request: HttpRequest, do: Callable[[], str]) -> HttpResponse:
        try:
            messages.success(request, do())
        except DomainError as error:
            messages.error(request, error.text)
        return HttpResponseRedirect(reverse("admin:alerts_rulemute_changelist"))


def _edited(project_id: int | None, name: str) -> EditedRule:
    """Return the rule as the active version has it; a new one for an empty name. Raises
    ``Http404``."""
    data, number, newest = active_data(project_id)
    entry, builtin = entry_named(data, name), find_builtin(name)
    watches = entry is not None and bool(entry.get("series") or entry.get("event"))
    rule = rule_of(entry) if entry is not None and (watches or builtin is not None) else builtin
    if name and rule is None:
        raise Http404
    return EditedRule(
        project_id=project_id,
        name=name,
        rule=rule,
        base=None if watches else builtin,
        is_stored=entry is not None,
        number=number,
        newest=newest,
        quiet_hours=frozenset(rulebook(data, number).quiet_hours),
    )


def _shown_with(edited: EditedRule) -> dict[str, Any]:
    names = Series.objects.order_by("name").values_list("name", flat=True).distinct()
    return {
        "subtitle": _scope_name(edited.project_id),
        "rule": edited.rule,
        "base": edited.base,
        "number": edited.number,
        "newer": edited.newest if edited.newest > edited.number else 0,
        "is_stored": edited.is_stored,
        "series_names": list(names[:MOST_NAMES]),
    }


def _preview(rule: Rule, project_id: int | None) -> dict[str, Any]:
    result = preview(rule=rule, project_id=project_id, now=timezone.now())
    rows = [
        {"found": finding, "facts": " · ".join(fact_texts(finding.facts or {}))}
        for finding in result.found
    ]
    return {"preview": result, "preview_rows": rows[:50]}


def _scope(project_id: int | None, names: dict[int, str]) -> str:
    return _("the platform") if project_id is None else names.get(project_id, str(project_id))


def _scope_name(project_id: int | None) -> str:
    if project_id is None:
        return _("the platform")
    return str(Project.objects.get(pk=project_id))


def _key(project_id: int | None) -> str:
    return PLATFORM if project_id is None else str(project_id)


def _edit_address(project_id: int | None, name: str) -> str:
    query = urlencode({"project": _key(project_id), "name": name})
    return f"{reverse('admin:alerts_rule')}?{query}"


def _watches(rule: Rule) -> str:
    source = find_source(rule.event) if rule.event else None
    if source is not None:
        return str(source.title)
    return f"{rule.source} {'' if rule.label == '*' else rule.label}".rstrip()


def _state_text(state: RuleState) -> str:
    return {
        RuleState.FIRING: _("firing"),
        RuleState.PENDING: pgettext("rule", "pending"),
        RuleState.OK: _("OK"),
        RuleState.UNKNOWN: _("no data"),
        RuleState.OFF: _("off"),
    }[state]
