"""Admin of hosts: state, and actions that take hosts out of service."""

from __future__ import annotations

from typing import Any, Final, cast

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.defaultfilters import filesizeformat
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_POST
from unfold.decorators import action, display

from apps.access.admin import AuditedAdmin, asks_first
from apps.access.admin.base import person_of, projects_of
from apps.access.admin.bulk import do_each
from apps.access.admin.read_only import ReadOnly
from apps.access.states import Role
from apps.jobs.models import Host
from apps.jobs.services import forget_host, switch_host
from apps.jobs.states import HostMode

ONLINE, PROBLEM, OFFLINE = "online", "problem", "offline"
STATES: Final = {ONLINE: "success", PROBLEM: "warning", OFFLINE: "danger"}
MODES: Final = {
    HostMode.ENABLED: "success",
    HostMode.DRAINING: "warning",
    HostMode.DISABLED: "danger",
}


@admin.register(Host)
class HostAdmin(ReadOnly, AuditedAdmin):
    """Admin of hosts: runners write the rows; users only change the mode or delete a row.

    Hosts serve every project: every member of a project sees them, and admins of any project may
    change their mode.
    """

    list_display = ("name", "state", "mode_label", "kind", "places", "cpu", "memory", "beat_at")
    list_filter = ("mode", "kind")
    search_fields = ("name",)
    actions = ("enable_selected", "drain_selected", "disable_selected", "forget_selected")
    list_per_page = 100
    show_full_result_count = False
    fields = (
        ("name", "kind"),
        ("state", "mode_label"),
        "problem",
        ("places", "labels_text"),
        ("cpu", "cores"),
        "memory",
        ("engine", "version"),
        ("system", "boot"),
        ("registered_at", "beat_at"),
    )
    readonly_fields = ("state", "mode_label", "places", "labels_text", "cpu", "memory")

    # --- permissions ------------------------------------------------------------------------------

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Allow every member of a project."""
        return self.has_view_permission(request)

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Allow every member of a project."""
        person = person_of(request)
        return bool(person and person.is_staff and projects_of(request, Role.VIEWER))

    def has_switch_permission(self, request: HttpRequest) -> bool:
        """Allow admins of any project to change the mode."""
        return bool(projects_of(request, Role.ADMIN))

    # --- columns ----------------------------------------------------------------------------------

    @display(description=_("state"), ordering="beat_at", label=STATES)
    def state(self, host: Host) -> tuple[str, Any]:
        """State of the host: online or silent, and whether runs can start."""
        if not host.is_online(timezone.now()):
            return OFFLINE, _("offline")
        return (PROBLEM, _("starts no runs")) if host.problem else (ONLINE, _("online"))

    @display(description=_("mode"), ordering="mode", label=MODES)
    def mode_label(self, host: Host) -> tuple[str, Any]:
        """Mode of the host: enabled, draining or disabled."""
        return host.mode, host.get_mode_display()

    @display(description=_("running"), ordering="running")
    def places(self, host: Host) -> str:
        """Number of runs, and the capacity."""
        return f"{host.running} / {host.capacity}"

    @display(description=_("CPU"), ordering="cpu_percent")
    def cpu(self, host: Host) -> str:
        """CPU load in percent of all cores, averaged over the last heartbeats."""
        return f"{host.cpu_percent:.0f} %"

    @display(description=_("free memory"), ordering="memory_free_bytes")
    def memory(self, host: Host) -> str:
        """Free and total memory of the host."""
        free, total = (
            filesizeformat(host.memory_free_bytes),
            filesizeformat(host.memory_total_bytes),
        )
        return f"{free} / {total}"

    @display(description=_("labels"))
    def labels_text(self, host: Host) -> str:
        """Labels of the runner."""
        return ", ".join(f"{name}={value}" for name, value in host.labels.items()) or "–"

    # --- actions ----------------------------------------------------------------------------------

    @action(description=_("Enable"), permissions=["switch"])
    def enable_selected(self, request: HttpRequest, queryset: QuerySet[Host]) -> None:
        """Enable the selected hosts."""
        self._switch_all(request, queryset, HostMode.ENABLED)

    @action(description=_("Drain"), permissions=["switch"])
    def drain_selected(self, request: HttpRequest, queryset: QuerySet[Host]) -> None:
        """Drain the selected hosts: no new runs until they are enabled."""
        self._switch_all(request, queryset, HostMode.DRAINING)

    @action(description=_("Disable"), permissions=["switch"])
    def disable_selected(self, request: HttpRequest, queryset: QuerySet[Host]) -> None:
        """Disable the selected hosts: no new runs."""
        self._switch_all(request, queryset, HostMode.DISABLED)

    @action(description=_("Delete offline hosts"), permissions=["switch"])
    @asks_first(verb=_("Delete"), loss=_("Offline hosts are deleted with their mode and labels."))
    def forget_selected(self, request: HttpRequest, queryset: QuerySet[Host]) -> None:
        """Delete the rows of hosts that are gone permanently."""
        actor, now = person_of(request), timezone.now()
        gone = do_each(request, queryset, lambda host: forget_host(host=host, actor=actor, now=now))
        if gone:
            text = ngettext("%(count)d host was deleted.", "%(count)d hosts were deleted.", gone)
            messages.success(request, text % {"count": gone})

    def _switch_all(self, request: HttpRequest, hosts: Any, mode: HostMode) -> None:
        person = person_of(request)
        count = sum(switch_host(host=host, mode=mode, actor=person) for host in hosts)
        text = ngettext(
            "%(count)d host is now %(mode)s.", "%(count)d hosts are now %(mode)s.", count
        )
        messages.success(request, text % {"count": count, "mode": mode.label})

    def get_urls(self) -> list[URLPattern]:
        """Add the URLs of the buttons."""
        switch = self.admin_site.admin_view(require_POST(self.switch_view))
        return [
            path("<int:pk>/enable", switch, {"mode": "enabled"}, name="jobs_host_enable"),
            path("<int:pk>/drain", switch, {"mode": "draining"}, name="jobs_host_drain"),
            path("<int:pk>/disable", switch, {"mode": "disabled"}, name="jobs_host_disable"),
            *super().get_urls(),
        ]

    def switch_view(self, request: HttpRequest, pk: int, mode: str) -> HttpResponse:
        """Change the mode of one host."""
        if not self.has_switch_permission(request):
            raise PermissionDenied
        host = Host.objects.filter(pk=pk).first()
        if host is None:
            raise Http404
        switch_host(host=host, mode=HostMode(mode), actor=person_of(request))
        text = gettext("Host %(host)s is now %(mode)s.")
        messages.success(request, text % {"host": host, "mode": HostMode(mode).label})
        return HttpResponseRedirect(reverse("admin:jobs_host_change", args=[pk]))

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show the page of one host with its buttons."""
        extra = {**(extra_context or {}), "may_switch": self.has_switch_permission(request)}
        return cast(HttpResponse, super().change_view(request, object_id, form_url, extra))
