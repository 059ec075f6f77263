"""Admin of incidents: list, history, and the actions acknowledge, snooze and close."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext, ngettext, pgettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_GET, require_POST
from unfold.contrib.filters.admin import DropdownFilter, RangeDateTimeFilter
from unfold.decorators import action, display

from apps.access.admin import ProjectScopedAdmin
from apps.access.admin.base import person_of, projects_of
from apps.access.admin.bulk import do_each
from apps.access.admin.filters import VisibleRelatedFilter
from apps.access.admin.read_only import ReadOnly
from apps.access.errors import DomainError
from apps.access.models import User
from apps.access.states import Role
from apps.alerts.admin.styles import CSS, INCIDENT_TONES, NOTICE_TONES, SEVERITY_TONES, result_text
from apps.alerts.models import Incident, IncidentNote, Notice
from apps.alerts.services.incidents import acknowledge, close, snooze
from apps.alerts.services.notices import resend
from apps.alerts.services.texts import (
    advice,
    fact_texts,
    sentence,
    span_text,
    when_text,
    where_text,
)
from apps.alerts.states import IncidentState, RecoveryReason, Severity
from apps.projects.admin.project_choice import number_in

MOST_NOTE: Final = 500
# Snooze durations offered on the page, in minutes.
SNOOZES: Final = (60, 240, 720, 1440, 10080)


class StateFilter(DropdownFilter):
    """Incident state filter that shows open incidents by default."""

    title = _("state")
    parameter_name = "which"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [
            ("open", pgettext("incident", "open")),
            ("over", pgettext("incident", "ended")),
            ("all", pgettext("incident", "all")),
        ]

    def value(self) -> str:
        """Return the chosen state, or open by default."""
        return str(super().value() or "open")

    def queryset(self, request: HttpRequest, queryset: QuerySet[Incident]) -> QuerySet[Incident]:
        if self.value() == "all":
            return queryset
        is_open = {"state": IncidentState.OPEN}
        return queryset.exclude(**is_open) if self.value() == "over" else queryset.filter(**is_open)


@admin.register(Incident)
class IncidentAdmin(ReadOnly, ProjectScopedAdmin):
    """Read-only list of incidents opened by the monitor; operators acknowledge, snooze and
    close."""

    list_display = ("summary", "level", "status", "scope", "rule", "total", "opened_at", "seen_at")
    list_display_links = ("summary",)
    list_filter = (
        StateFilter,
        "severity",
        ("project", VisibleRelatedFilter),
        ("opened_at", RangeDateTimeFilter),
    )
    list_filter_submit = True
    list_select_related = ("project", "acknowledged_by")
    search_fields = ("rule", "key", "source")
    search_help_text = _("Rule, object, source")
    list_per_page = 50
    actions = ("acknowledge_selected", "close_selected")

    class Media:
        css: ClassVar = {"all": CSS}

    def get_urls(self) -> list[URLPattern]:
        """Add the URLs of the action buttons and of the live part of a page."""

        def post(view: Callable[..., HttpResponse]) -> Any:
            return self.admin_site.admin_view(require_POST(view))

        live = self.admin_site.admin_view(require_GET(self.live_view))
        return [
            path("<int:pk>/live", live, name="alerts_incident_live"),
            path("<int:pk>/acknowledge", post(self.acknowledge_view), name="alerts_acknowledge"),
            path("<int:pk>/snooze", post(self.snooze_view), name="alerts_snooze"),
            path("<int:pk>/close", post(self.close_view), name="alerts_close"),
            path("resend/<int:pk>", post(self.resend_view), name="alerts_resend"),
            *super().get_urls(),
        ]

    # --- the list -------------------------------------------------------------------------------

    @display(description=_("incident"))
    def summary(self, incident: Incident) -> SafeString:
        """Return the incident's summary in one line."""
        return format_html('<span class="cy-strong">{}</span>', sentence(incident))

    @display(description=_("severity"), ordering="severity", label=SEVERITY_TONES)
    def level(self, incident: Incident) -> tuple[str, Any]:
        """Return the severity."""
        return incident.severity, incident.get_severity_display()

    @display(
        description=_("state"),
        ordering="state",
        label={**INCIDENT_TONES, "acknowledged": "warning"},
    )
    def status(self, incident: Incident) -> tuple[str, Any]:
        """Return the state, and who has acknowledged the incident."""
        if incident.state == IncidentState.OPEN and incident.acknowledged_at is not None:
            return "acknowledged", state_text(incident)
        return incident.state, state_text(incident)

    @display(description=_("belongs to"), ordering="project")
    def scope(self, incident: Incident) -> str:
        """Return the project, or "the platform"."""
        return gettext("the platform") if incident.project is None else str(incident.project)

    @display(description=_("occurrences"), ordering="count")
    def total(self, incident: Incident) -> str:
        """Return the number of detections."""
        return f"{incident.count:,}"

    @action(description=_("Acknowledge"), permissions=["operate"])
    def acknowledge_selected(self, request: HttpRequest, queryset: QuerySet[Incident]) -> None:
        done = _each(request, queryset, acknowledge)
        text = ngettext(
            "%(count)d incident acknowledged.", "%(count)d incidents acknowledged.", done
        )
        messages.success(request, text % {"count": done})

    @action(description=_("Close"), permissions=["operate"])
    def close_selected(self, request: HttpRequest, queryset: QuerySet[Incident]) -> None:
        done = _each(request, queryset, close)
        text = ngettext("%(count)d incident closed.", "%(count)d incidents closed.", done)
        messages.success(request, text % {"count": done})

    # --- one incident ---------------------------------------------------------------------------

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show the incident with its history and notifications."""
        incident = self._incident(request, number_in(object_id))
        context = {
            **self.admin_site.each_context(request),
            **self._page(request, incident),
            "title": _("Incident %(number)d") % {"number": incident.pk},
            "media": self.media,
            "opts": self.opts,
            "snoozes": [(minutes, span_text(minutes * 60)) for minutes in SNOOZES],
            "max_note": MOST_NOTE,
        }
        return TemplateResponse(request, "admin/alerts/incident.html", context)

    def live_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Return the part of the page that refreshes itself."""
        incident = self._incident(request, pk)
        return TemplateResponse(
            request, "admin/alerts/incident_live.html", self._page(request, incident)
        )

    def acknowledge_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        def do(incident: Incident, actor: User, note: str) -> str:
            acknowledge(incident=incident, actor=actor, now=timezone.now(), note=note)
            return gettext("Incident acknowledged: no more reminders or escalations.")

        return self._act(request, pk, do)

    def snooze_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        minutes = number_in(request.POST.get("minutes", "")) or 0

        def do(incident: Incident, actor: User, note: str) -> str:
            now = timezone.now()
            until = now + timedelta(minutes=min(minutes, 10**6))
            snooze(incident=incident, until=until, actor=actor, now=now, note=note)
            return gettext("Notifications paused for %(time)s.") % {"time": span_text(minutes * 60)}

        return self._act(request, pk, do)

    def close_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        def do(incident: Incident, actor: User, note: str) -> str:
            close(incident=incident, actor=actor, now=timezone.now(), note=note)
            return gettext("Incident closed.")

        return self._act(request, pk, do)

    def resend_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Resend one of the incident's notifications."""
        rows = Notice.objects.visible_to(request.user).select_related("project", "channel")
        notice = rows.filter(pk=pk).first()
        if notice is None:
            raise Http404
        if notice.project_id not in projects_of(request, Role.OPERATOR):
            raise PermissionDenied
        try:
            resend(notice=notice, actor=person_of(request), now=timezone.now())
        except DomainError as error:
            messages.error(request, error.text)
        else:
            messages.success(request, gettext("Notification queued again."))
        if notice.incident_id is None:
            return HttpResponseRedirect(reverse("admin:alerts_notice_changelist"))
        return _to(notice.incident_id)

    # --- what they share --------------------------------------------------------------------------

    def _incident(self, request: HttpRequest, pk: int | None) -> Incident:
        rows = Incident.objects.visible_to(request.user)
        incident = rows.select_related("project", "acknowledged_by").filter(pk=pk or 0).first()
        if incident is None:
            raise Http404
        return incident

    def _act(
        self, request: HttpRequest, pk: int, do: Callable[[Incident, User, str], str]
    ) -> HttpResponse:
        incident, actor = self._incident(request, pk), person_of(request)
        if actor is None or incident.project_id not in projects_of(request, Role.OPERATOR):
            raise PermissionDenied
        try:
            message = do(incident, actor, request.POST.get("note", "").strip()[:MOST_NOTE])
        except DomainError as error:
            messages.error(request, error.text)
        else:
            messages.success(request, message)
        return _to(pk)

    def _page(self, request: HttpRequest, incident: Incident) -> dict[str, Any]:
        notices = incident.notices.select_related("channel")
        return {
            "incident": incident,
            "what": sentence(incident),
            "where": where_text(incident),
            "advice": advice(incident),
            "facts": fact_texts(incident.facts),
            "condition": when_text(incident.source, incident.condition),
            "severity_tone": SEVERITY_TONES[incident.severity],
            "state_tone": INCIDENT_TONES[incident.state],
            "state": state_text(incident),
            "lasted": span_text(_lasted(incident)),
            "page": incident.address if _is_own(incident.address) else "",
            "story": [(note, step_text(note)) for note in incident.notes.all()],
            "notices": [
                (notice, NOTICE_TONES[notice.state], result_text(notice)) for notice in notices
            ],
            "may_operate": incident.project_id in projects_of(request, Role.OPERATOR),
        }


def state_text(incident: Incident) -> str:
    """Return the state, and who has acknowledged the incident."""
    if incident.state == IncidentState.OPEN and incident.acknowledged_at is not None:
        who = incident.acknowledged_by
        name = "–" if who is None else who.get_username()
        return gettext("acknowledged by %(who)s") % {"who": name}
    if incident.state == IncidentState.OPEN and incident.snoozed_until is not None:
        until = timezone.localtime(incident.snoozed_until)
        return gettext("snoozed until %(time)s") % {"time": f"{until:%m-%d %H:%M}"}
    return str(incident.get_state_display())


def step_text(note: IncidentNote) -> str:
    """Return the details of a history entry beyond its name."""
    detail, parts = note.detail, []
    if detail.get("why") in RecoveryReason.values:
        parts.append(str(RecoveryReason(detail["why"]).label))
    if isinstance(detail.get("value"), int | float):
        parts.append(gettext("value %(value)s") % {"value": f"{detail['value']:,.6g}"})
    if detail.get("severity") in Severity.values:
        parts.append(str(Severity(detail["severity"]).label))
    if isinstance(detail.get("tell"), list) and detail["tell"]:
        parts.append(", ".join(str(channel) for channel in detail["tell"]))
    if detail.get("until"):
        until = timezone.localtime(datetime.fromisoformat(detail["until"]))
        parts.append(gettext("until %(time)s") % {"time": f"{until:%Y-%m-%d %H:%M}"})
    if detail.get("note"):
        parts.append(str(detail["note"]))
    return "; ".join(parts)


def _lasted(incident: Incident) -> float:
    end = incident.ended_at or timezone.now()
    return max(0.0, (end - incident.since).total_seconds())


def _is_own(address: str) -> bool:
    return address.startswith("/") and not address.startswith("//")


def _to(pk: int) -> HttpResponse:
    return HttpResponseRedirect(reverse("admin:alerts_incident_change", args=[pk]))


def _each(request: HttpRequest, queryset: QuerySet[Incident], do: Callable[..., Any]) -> int:
    """Apply an action to each chosen incident and show refusals.

    Raises ``PermissionDenied`` if one is not the user's to change.
    """
    chosen, actor = list(queryset), person_of(request)
    allowed = projects_of(request, Role.OPERATOR)
    if not all(incident.project_id in allowed for incident in chosen):
        raise PermissionDenied
    return do_each(
        request, chosen, lambda each: do(incident=each, actor=actor, now=timezone.now()), named=True
    )
