"""Agents and allocations in the admin: to look at, and to take an agent out of service."""

from __future__ import annotations

import json
from typing import Any, cast

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.defaultfilters import filesizeformat
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_POST
from unfold.decorators import action, display

from apps.access.admin import AuditedAdmin, ProjectScopedAdmin
from apps.access.admin.base import person_of, projects_of
from apps.access.admin.filters import VisibleRelatedFilter
from apps.access.admin.read_only import ReadOnly
from apps.access.states import Role
from apps.agents.hosts import admin as hosts_admin  # noqa: F401 - registers its own models
from apps.agents.models import Agent, Allocation
from apps.agents.services import enable_agent
from apps.agents.states import is_alive

ALIVE, SILENT = "alive", "silent"


@admin.register(Agent)
class AgentAdmin(ReadOnly, AuditedAdmin):
    """Agents describe themselves; a person only takes them out of service and back.

    They serve every project, so whoever sees a project sees them, and only people who
    administer a project may switch them.
    """

    list_display = (
        "__str__",
        "alive",
        "enabled",
        "cpu",
        "memory",
        "downloaders",
        "rate",
        "heartbeat",
        "version",
    )
    list_filter = ("enabled", "version")
    search_fields = ("name", "agent_id")
    actions = ("enable_selected", "disable_selected")
    list_per_page = 100
    show_full_result_count = False
    fields = (
        ("name", "agent_id"),
        ("alive_text", "enabled"),
        ("cpu", "memory", "processors"),
        ("downloaders", "rate"),
        ("heartbeat_at", "registered_at"),
        ("version", "boot"),
        "labels_text",
    )
    readonly_fields = ("alive_text", "cpu", "memory", "rate", "labels_text")

    def get_urls(self) -> list[URLPattern]:
        """Two more addresses: the buttons of the page of an agent."""
        switch = self.admin_site.admin_view(require_POST(self.switch_view))
        return [
            path("<int:pk>/enable", switch, {"enabled": True}, name="agents_agent_enable"),
            path("<int:pk>/disable", switch, {"enabled": False}, name="agents_agent_disable"),
            *super().get_urls(),
        ]

    @display(description=_("alive"), label={ALIVE: "success", SILENT: "danger"})
    def alive(self, agent: Agent) -> tuple[str, Any]:
        """Whether the last heartbeat is younger than 11 s."""
        if is_alive(agent.heartbeat_at, timezone.now()):
            return ALIVE, _("alive")
        return SILENT, _("silent")

    @display(description=_("alive"))
    def alive_text(self, agent: Agent) -> Any:
        """The same on the page of one agent, which has no coloured labels."""
        return self.alive(agent)[1]

    @display(description=_("CPU"), ordering="cpu_percent")
    def cpu(self, agent: Agent) -> str:
        """Percent of the host."""
        return f"{agent.cpu_percent:.0f} %"

    @display(description=_("memory, free of all"), ordering="free_memory_bytes")
    def memory(self, agent: Agent) -> str:
        """Free and total memory of the host."""
        free, total = agent.free_memory_bytes, agent.total_memory_bytes
        return f"{filesizeformat(free)} / {filesizeformat(total)}"

    @display(description=_("QPS"), ordering="qps")
    def rate(self, agent: Agent) -> str:
        """Downloads a second over the last 5 s."""
        return f"{agent.qps:.1f}"

    @display(description=_("last heartbeat"), ordering="heartbeat_at")
    def heartbeat(self, agent: Agent) -> str:
        """Its age in seconds, minutes, hours or days."""
        if agent.heartbeat_at is None:
            return gettext("never")
        seconds = max(0, int((timezone.now() - agent.heartbeat_at).total_seconds()))
        for limit, unit, text in (
            (60, 1, gettext("%(count)d s ago")),
            (3600, 60, gettext("%(count)d min ago")),
            (86400, 3600, gettext("%(count)d h ago")),
        ):
            if seconds < limit:
                return text % {"count": seconds // unit}
        return gettext("%(count)d days ago") % {"count": seconds // 86400}

    @display(description=_("labels"))
    def labels_text(self, agent: Agent) -> str:
        """Labels as the agent reports them."""
        return ", ".join(f"{name}={value}" for name, value in agent.labels.items()) or "–"

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Whoever sees any project."""
        return self.has_view_permission(request)

    def has_view_permission(self, request: HttpRequest, obj: Agent | None = None) -> bool:
        """Whoever sees any project."""
        person = person_of(request)
        return bool(person and person.is_staff and projects_of(request, Role.VIEWER))

    def has_switch_permission(self, request: HttpRequest) -> bool:
        """Whoever administers a project."""
        return bool(projects_of(request, Role.ADMIN))

    @action(description=_("Enable"), permissions=["switch"])
    def enable_selected(self, request: HttpRequest, queryset: QuerySet[Agent]) -> None:
        """Back into service."""
        count = sum(self._switch(request, agent, True) for agent in queryset)
        text = ngettext("%(count)d agent was enabled.", "%(count)d agents were enabled.", count)
        messages.success(request, text % {"count": count})

    @action(description=_("Disable"), permissions=["switch"])
    def disable_selected(self, request: HttpRequest, queryset: QuerySet[Agent]) -> None:
        """Out of service: no new runs."""
        count = sum(self._switch(request, agent, False) for agent in queryset)
        text = ngettext("%(count)d agent was disabled.", "%(count)d agents were disabled.", count)
        messages.success(request, text % {"count": count})

    def switch_view(self, request: HttpRequest, pk: int, enabled: bool) -> HttpResponse:
        """The button on the page of one agent."""
        if not self.has_switch_permission(request):
            raise PermissionDenied
        agent = Agent.objects.filter(pk=pk).first()
        if agent is None:
            raise Http404
        self._switch(request, agent, enabled)
        text = (
            gettext("Agent %(agent)s is enabled.")
            if enabled
            else gettext(
                "Agent %(agent)s is disabled: it gets no new runs and finishes what it has."
            )
        )
        messages.success(request, text % {"agent": agent})
        return HttpResponseRedirect(reverse("admin:agents_agent_change", args=[pk]))

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """The figures of one agent, and the button."""
        extra = dict(extra_context or {})
        extra["may_switch"] = self.has_switch_permission(request)
        return cast(HttpResponse, super().change_view(request, object_id, form_url, extra))

    def _switch(self, request: HttpRequest, agent: Agent, enabled: bool) -> bool:
        return enable_agent(agent=agent, enabled=enabled, actor=person_of(request))


@admin.register(Allocation)
class AllocationAdmin(ReadOnly, ProjectScopedAdmin):
    """Which agents serve which run; only the center writes it."""

    list_display = (
        "belongs_to",
        "project",
        "policy",
        "given",
        "asked",
        "warning",
        "created_at",
        "state",
    )
    list_display_links = ("created_at",)
    list_filter = (("project", VisibleRelatedFilter), "policy")
    list_filter_submit = True
    list_select_related = ("project",)
    search_fields = ("=owner",)
    search_help_text = _("The run as run:7")
    list_per_page = 50
    fields = (
        ("owner", "project", "policy"),
        ("asked", "warning"),
        "agents",
        ("created_at", "released_at"),
        "settings_text",
    )
    readonly_fields = ("settings_text",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """With the agents of each, in one query more."""
        return super().get_queryset(request).prefetch_related("agents")

    @display(description=_("run"), ordering="owner")
    def belongs_to(self, allocation: Allocation) -> SafeString | str:
        """The page of the run, where a run is the owner."""
        kind, _separator, number = allocation.owner.partition(":")
        if kind != "run" or not number.isdecimal():
            return allocation.owner
        return format_html('<a href="{}">#{}</a>', reverse("dashboard:run", args=[number]), number)

    @display(description=_("agents"))
    def given(self, allocation: Allocation) -> str:
        """The names of the agents."""
        return ", ".join(str(agent) for agent in allocation.agents.all()) or "–"

    @display(description=_("state"), label={"open": "info", "released": "default"})
    def state(self, allocation: Allocation) -> tuple[str, Any]:
        """Open until the run gives its agents back."""
        if allocation.released_at is None:
            return "open", _("open")
        return "released", _("released")

    @display(description=_("settings"))
    def settings_text(self, allocation: Allocation) -> SafeString:
        """What the downloaders were told; cookies are secrets and stay hidden."""
        settings = cast("dict[str, Any]", dict(allocation.settings))
        if settings.get("cookies"):
            settings["cookies"] = dict.fromkeys(settings["cookies"], "•••")
        text = json.dumps(settings, indent=2, ensure_ascii=False)
        return format_html('<pre class="whitespace-pre-wrap">{}</pre>', text)
