"""Admin of notifications: every message sent or failed, with the server's response."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext
from unfold.contrib.filters.admin import RangeDateTimeFilter
from unfold.decorators import action, display

from apps.access.admin import ProjectScopedAdmin
from apps.access.admin.base import person_of, projects_of
from apps.access.admin.bulk import do_each
from apps.access.admin.filters import VisibleRelatedFilter
from apps.access.admin.read_only import ReadOnly
from apps.access.states import Role
from apps.alerts.admin.styles import CSS, NOTICE_TONES, result_text
from apps.alerts.models import Notice
from apps.alerts.services.notices import resend


@admin.register(Notice)
class NoticeAdmin(ReadOnly, ProjectScopedAdmin):
    """Read-only list of notifications, which can be resent."""

    list_display = ("created_at", "channel_name", "reason", "link", "status", "tries", "response")
    list_filter = (
        "state",
        "kind",
        "problem",
        ("project", VisibleRelatedFilter),
        ("channel", VisibleRelatedFilter),
        ("created_at", RangeDateTimeFilter),
    )
    list_filter_submit = True
    list_select_related = ("project", "incident")
    search_fields = ("channel_name", "answer", "incident__rule")
    search_help_text = _("Channel, response, rule")
    list_per_page = 50
    actions = ("send_again_selected",)
    fields: ClassVar[Any] = (
        ("channel_name", "project"),
        ("kind", "link"),
        ("state", "problem"),
        "answer",
        ("created_at", "not_before"),
        ("attempts", "next_try_at", "sent_at"),
        ("reached", "resent_from"),
    )

    class Media:
        css: ClassVar = {"all": CSS}

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        """Hide recipients of platform channels from users who cannot manage the platform."""
        channel = None if obj is None else obj.channel
        if channel is None or channel.project_id in projects_of(request, Role.VIEWER):
            return list(self.fields)
        return [field for field in self.fields if "reached" not in field]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        names: list[str] = []
        for field in self.fields:
            names += [field] if isinstance(field, str) else field
        return tuple(names)

    @display(description=_("reason"), ordering="kind")
    def reason(self, notice: Notice) -> str:
        """Return what caused the notification."""
        return str(notice.get_kind_display())

    @display(description=_("incident"))
    def link(self, notice: Notice) -> SafeString | str:
        """Return a link to the incident."""
        if notice.incident is None:
            return "–"
        address = reverse("admin:alerts_incident_change", args=[notice.incident.pk])
        return format_html('<a class="cy-strong" href="{}">{}</a>', address, notice.incident)

    @display(description=_("state"), ordering="state", label=NOTICE_TONES)
    def status(self, notice: Notice) -> tuple[str, Any]:
        return notice.state, notice.get_state_display()

    @display(description=_("attempts"), ordering="attempts")
    def tries(self, notice: Notice) -> str:
        """Return the number of attempts and the time of the next one."""
        if notice.next_try_at is None:
            return str(notice.attempts)
        at = timezone.localtime(notice.next_try_at)
        return _("%(tries)d, next %(time)s") % {"tries": notice.attempts, "time": f"{at:%H:%M:%S}"}

    @display(description=_("response"))
    def response(self, notice: Notice) -> SafeString:
        """Return the server's response."""
        return format_html('<span class="cy-reason">{}</span>', result_text(notice))

    @display(description=_("resent from"))
    def resent_from(self, notice: Notice) -> SafeString | str:
        """Return a link to the original of a resent notification."""
        if notice.resent_of is None:
            return "–"
        address = reverse("admin:alerts_notice_change", args=[notice.resent_of.pk])
        return format_html('<a class="cy-strong" href="{}">{}</a>', address, notice.resent_of)

    @display(description=_("delivered to"))
    def reached(self, notice: Notice) -> str:
        """Return the recipients reached so far, if there are several."""
        return ", ".join(notice.delivered) or "–"

    @action(description=_("Send again"), permissions=["operate"])
    def send_again_selected(self, request: HttpRequest, queryset: QuerySet[Notice]) -> None:
        """Resend the chosen notifications that have finished."""
        chosen = list(queryset.select_related("project", "channel"))
        if not all(notice.project_id in projects_of(request, Role.OPERATOR) for notice in chosen):
            raise PermissionDenied
        actor, now = person_of(request), timezone.now()
        sent = do_each(
            request, chosen, lambda each: resend(notice=each, actor=actor, now=now), named=True
        )
        text = ngettext(
            "%(count)d notification queued again.", "%(count)d notifications queued again.", sent
        )
        messages.success(request, text % {"count": sent})
