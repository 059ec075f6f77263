"""Hosts in the admin: rules, states, and the button that stops all requests."""

from __future__ import annotations

from typing import Any, cast

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Model, OuterRef, QuerySet, Subquery, Sum
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_POST
from unfold.decorators import action, display

from apps.access.admin import AuditedAdmin
from apps.access.admin.base import person_of, projects_of
from apps.access.admin.read_only import ReadOnly
from apps.access.states import Role
from apps.agents.hosts.models import HostRule, HostState
from apps.agents.hosts.services import resume_host, stop_host

STOPPED, PAUSED, OPEN = "stopped", "paused", "open"
LABELS = {STOPPED: "danger", PAUSED: "warning", OPEN: "success"}


class _HostsAdmin(AuditedAdmin):
    """Hosts serve every project: members of any see them, administrators of any change them."""

    actions = ("stop_selected", "resume_selected")
    list_per_page = 100
    show_full_result_count = False

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Allow members of any project."""
        return self.has_view_permission(request)

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Allow members of any project."""
        person = person_of(request)
        return bool(person and person.is_staff and projects_of(request, Role.VIEWER))

    def has_switch_permission(self, request: HttpRequest) -> bool:
        """Allow administrators of any project."""
        person = person_of(request)
        return bool(person and person.is_staff and projects_of(request, Role.ADMIN))

    @action(description=_("Stop (defer all requests)"), permissions=["switch"])
    def stop_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Hold all requests to these hosts, of all runs."""
        hosts = sorted(set(queryset.values_list("host", flat=True)))
        count = sum(stop_host(host=host, actor=person_of(request)) for host in hosts)
        text = ngettext("%(count)d host was stopped.", "%(count)d hosts were stopped.", count)
        messages.success(request, text % {"count": count})

    @action(description=_("Resume (send deferred requests)"), permissions=["switch"])
    def resume_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Release held requests, within the limits of the hosts."""
        hosts = sorted(set(queryset.values_list("host", flat=True)))
        count = sum(resume_host(host=host, actor=person_of(request)) for host in hosts)
        text = ngettext("%(count)d host was resumed.", "%(count)d hosts were resumed.", count)
        messages.success(request, text % {"count": count})


@admin.register(HostRule)
class HostRuleAdmin(_HostsAdmin):
    """Rules; the centers apply a change within a second."""

    list_display = ("host", "state", "rate", "at_once", "robots", "held", "in_flight", "updated_at")
    list_filter = ("stopped", "obey_robots")
    search_fields = ("host", "notes")
    fields = ("host", ("requests_per_second", "concurrency"), ("stopped", "obey_robots"), "notes")

    def get_queryset(self, request: HttpRequest) -> QuerySet[HostRule]:
        """Annotate the held and in-flight requests of all centers."""
        of_host = HostState.objects.filter(host=OuterRef("host")).order_by().values("host")
        rows = cast("QuerySet[HostRule]", super().get_queryset(request))
        return rows.annotate(
            held_now=Subquery(of_host.annotate(sum=Sum("held")).values("sum")),
            sent_now=Subquery(of_host.annotate(sum=Sum("in_flight")).values("sum")),
        )

    def get_urls(self) -> list[URLPattern]:
        """Add the buttons of the page of a rule."""
        switch = self.admin_site.admin_view(require_POST(self.switch_view))
        return [
            path("<int:pk>/stop", switch, {"stop": True}, name="agents_hostrule_stop"),
            path("<int:pk>/resume", switch, {"stop": False}, name="agents_hostrule_resume"),
            *super().get_urls(),
        ]

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Allow administrators of any project."""
        return self.has_switch_permission(request)

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Allow administrators of any project."""
        return self.has_switch_permission(request)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Allow administrators of any project."""
        return self.has_switch_permission(request)

    @display(description=_("state"), label=LABELS)
    def state(self, rule: HostRule) -> tuple[str, Any]:
        """Return whether requests are stopped."""
        return (STOPPED, _("stopped")) if rule.stopped else (OPEN, _("open"))

    @display(description=_("requests per second"), ordering="requests_per_second")
    def rate(self, rule: HostRule) -> Any:
        """Return the rate of the rule, or of the settings."""
        return _limit(rule.requests_per_second)

    @display(description=_("concurrency"), ordering="concurrency")
    def at_once(self, rule: HostRule) -> Any:
        """Return the concurrency of the rule, or of the settings."""
        return _limit(rule.concurrency)

    @display(description="robots.txt", ordering="obey_robots")
    def robots(self, rule: HostRule) -> Any:
        """Return whether robots.txt is obeyed."""
        if rule.obey_robots is None:
            return _("set by the job")
        return _("obeyed") if rule.obey_robots else _("ignored")

    @display(description=_("deferred"))
    def held(self, rule: Any) -> Any:
        """Return the requests held for exactly this host."""
        return rule.held_now or 0

    @display(description=_("in progress"))
    def in_flight(self, rule: Any) -> Any:
        """Return the requests to exactly this host that agents have."""
        return rule.sent_now or 0

    def switch_view(self, request: HttpRequest, pk: int, stop: bool) -> HttpResponse:
        """Handle the button on the page of a rule."""
        if not self.has_switch_permission(request):
            raise PermissionDenied
        rule = HostRule.objects.filter(pk=pk).first()
        if rule is None:
            raise Http404
        if stop:
            stop_host(host=rule.host, actor=person_of(request))
            text = gettext("Host %(host)s is stopped: all requests to it are deferred.")
        else:
            resume_host(host=rule.host, actor=person_of(request))
            text = gettext("Host %(host)s is resumed.")
        messages.success(request, text % {"host": rule.host})
        return HttpResponseRedirect(reverse("admin:agents_hostrule_changelist"))

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show the rule, and the button."""
        extra = dict(extra_context or {})
        extra["may_switch"] = self.has_switch_permission(request)
        return cast(HttpResponse, super().change_view(request, object_id, form_url, extra))


@admin.register(HostState)
class HostStateAdmin(ReadOnly, _HostsAdmin):
    """Busy hosts as each center sees them, at most a second old."""

    list_display = (
        "host",
        "state",
        "held",
        "in_flight",
        "reason",
        "blocked_until",
        "robots",
        "center",
        "reported_at",
    )
    list_filter = ("stopped", "robots", "center")
    search_fields = ("host",)

    @display(description=_("state"), label=LABELS)
    def state(self, row: HostState) -> tuple[str, Any]:
        """Return stopped, paused after overload, or open."""
        if row.stopped:
            return STOPPED, _("stopped")
        if row.blocked_until is not None:
            return PAUSED, _("paused")
        return OPEN, _("open")


def _limit(value: float | None) -> Any:
    if value is None:
        return _("default of the settings")
    return _("unlimited") if value == 0 else f"{value:g}"
