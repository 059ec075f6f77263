"""Agents in the admin: list, page of one agent, buttons."""

from __future__ import annotations

from typing import Any, Final, cast

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.forms import Script
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext, ngettext, ngettext_lazy
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_GET, require_POST
from unfold.decorators import action, display

from apps.access.admin import AuditedAdmin, ask_first, asks_first
from apps.access.admin.base import person_of, projects_of
from apps.access.admin.bulk import do_each
from apps.access.admin.lists import BoundedList
from apps.access.admin.read_only import ReadOnly
from apps.access.states import Role
from apps.agents.admin.cells import Cells
from apps.agents.admin.charts import agent_charts
from apps.agents.admin.detail import detail
from apps.agents.admin.preview import preview_page
from apps.agents.models import Agent
from apps.agents.services import exit_agent, switch_agent
from apps.agents.states import AgentMode

PER_PAGE = 100
MOST_REASON = 200
_REASON: Final = {
    "name": "reason",
    "label": _("Reason (audit trail and agent log)"),
    "most": MOST_REASON,
}
_EXITS: Final = ngettext_lazy(
    "This agent finishes what it holds and ends. Whether it comes back is up to what supervises "
    "it on its host.",
    "These %(count)d agents finish what they hold and end. Whether they come back is up to what "
    "supervises them on their hosts.",
    "count",
)


class AgentList(BoundedList):
    """Change list with the cells of its page; one moment for all, sparklines in one query."""

    result_list: Any

    def get_results(self, request: HttpRequest) -> None:
        """Attach ``cells`` to each agent of the page."""
        super().get_results(request)
        agents = list(self.result_list)
        cells = Cells(agents, timezone.now())
        for agent in agents:
            agent.cells = cells
        self.result_list = agents


@admin.register(Agent)
class AgentAdmin(ReadOnly, AuditedAdmin):
    """Agents describe themselves; operators only change their mode.

    They serve every project: members of any project see them, project administrators switch them.
    """

    list_display = ("who", "alive", "mode_label", "cpu", "memory", "downloaders_now", "rate")
    list_filter = ("mode", "version")
    list_filter_submit = True
    search_fields = ("name", "agent_id")
    actions = ("enable_selected", "drain_selected", "disable_selected", "exit_selected")
    list_per_page = PER_PAGE
    show_full_result_count = False
    list_before_template = "admin/agents/agent/list_head.html"
    list_after_template = "admin/agents/agent/list_charts.html"
    change_form_outer_before_template = "admin/agents/agent/detail.html"
    fields = (
        ("name", "agent_id"),
        ("version", "boot"),
        ("processors", "types_text"),
        ("registered_at", "switched_at"),
        "labels_text",
    )
    readonly_fields = ("types_text", "labels_text")

    class Media:
        css = {"all": ["dashboard/dashboard.css", "agents/agents.css"]}
        js = [
            # The scripts look for elements of the page.
            Script("dashboard/live.js", defer=True),
            Script("agents/agents.js", defer=True),
        ]

    def changelist_view(self, request: HttpRequest, /, *args: Any, **kwargs: Any) -> HttpResponse:
        """Show the list; with charts for users who may see everything."""
        response = super().changelist_view(request, *args, **kwargs)
        person = person_of(request)
        context = getattr(response, "context_data", None) or {}
        if "cl" in context and person is not None and person.sees_everything:
            context["charts"] = agent_charts(context["cl"].result_list)
        return response

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[AgentList]:
        return AgentList

    def get_urls(self) -> list[URLPattern]:
        """Add the buttons, the live data and the preview."""
        view = self.admin_site.admin_view
        switch = view(require_POST(self.switch_view))
        return [
            path("live", view(require_GET(self.list_live_view)), name="agents_agent_live"),
            path("preview", view(require_GET(self.preview_view)), name="agents_agent_preview"),
            path("<int:pk>/live", view(require_GET(self.live_view)), name="agents_agent_detail"),
            path("<int:pk>/enable", switch, {"mode": "enabled"}, name="agents_agent_enable"),
            path("<int:pk>/drain", switch, {"mode": "draining"}, name="agents_agent_drain"),
            path("<int:pk>/disable", switch, {"mode": "disabled"}, name="agents_agent_disable"),
            path("<int:pk>/exit", view(self.exit_view), name="agents_agent_exit"),
            *super().get_urls(),
        ]

    # --- the list -------------------------------------------------------------------------------

    @display(description=_("agent"), ordering="name")
    def who(self, agent: Any) -> SafeString:
        """Return the name, and problems reported by the agent."""
        return format_html('<span class="cy-who">{}</span>{}', agent, _cell(agent, "problems"))

    @display(description=_("state"), ordering="heartbeat_at")
    def alive(self, agent: Any) -> SafeString:
        """Return whether the last heartbeat is younger than 11 s, and its age."""
        return _cell(agent, "alive")

    @display(description=_("mode"), ordering="mode")
    def mode_label(self, agent: Any) -> SafeString:
        return _cell(agent, "mode")

    @display(description=_("CPU"), ordering="cpu_percent")
    def cpu(self, agent: Any) -> SafeString:
        """Return the CPU usage of the host in percent."""
        return _cell(agent, "cpu")

    @display(description=_("free memory"), ordering="free_memory_bytes")
    def memory(self, agent: Any) -> SafeString:
        """Return free and total memory of the host."""
        return _cell(agent, "memory")

    @display(description=_("downloaders"), ordering="downloaders")
    def downloaders_now(self, agent: Any) -> SafeString:
        """Return the number of runs it serves."""
        return _cell(agent, "downloaders")

    @display(description=_("QPS, last hour"), ordering="qps")
    def rate(self, agent: Any) -> SafeString:
        """Return downloads per second over the last 5 s, and a sparkline of the last hour."""
        return _cell(agent, "rate")

    def list_live_view(self, request: HttpRequest) -> HttpResponse:
        """Return the changing cells of the agents in ``?ids=1,2`` as JSON."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        asked = request.GET.get("ids", "").split(",")[:PER_PAGE]
        ids = [int(each) for each in asked if each.isascii() and each.isdigit() and len(each) < 19]
        agents = list(Agent.objects.filter(pk__in=ids))
        cells = Cells(agents, timezone.now())
        shown: dict[str, str] = {}
        for agent in agents:
            shown |= cells.all_of(agent)
        return JsonResponse({"cells": shown})

    # --- one agent ------------------------------------------------------------------------------

    @display(description=_("labels"))
    def labels_text(self, agent: Agent) -> str:
        return ", ".join(f"{name}={value}" for name, value in agent.labels.items()) or "–"

    @display(description=_("types of downloader"))
    def types_text(self, agent: Agent) -> str:
        """Return the types of downloader that it can make."""
        return ", ".join(agent.types) or "–"

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show the figures of one agent, and the buttons."""
        extra = dict(extra_context or {})
        agent = self.get_object(request, object_id)
        if agent is not None and self.has_view_permission(request):
            extra |= self._detail(request, agent)
            extra["may_switch"] = self.has_switch_permission(request)
        return cast(HttpResponse, super().change_view(request, object_id, form_url, extra))

    def live_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Return the changing part of the page of one agent."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        context = self._detail(request, _agent(pk))
        return TemplateResponse(request, "admin/agents/agent/live.html", context)

    def _detail(self, request: HttpRequest, agent: Agent) -> dict[str, Any]:
        hours = request.GET.get("hours", "")
        asked = int(hours) if hours.isascii() and hours.isdigit() and len(hours) < 4 else 0
        return detail(agent, person_of(request), asked, timezone.now())

    def preview_view(self, request: HttpRequest) -> HttpResponse:
        """Show which agents a job would get now, and why not the others."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        context = {**self.admin_site.each_context(request), "opts": self.opts, "media": self.media}
        return preview_page(request, context)

    # --- who may what ---------------------------------------------------------------------------

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Allow members of any project."""
        return self.has_view_permission(request)

    def has_view_permission(self, request: HttpRequest, obj: Agent | None = None) -> bool:
        """Allow members of any project."""
        person = person_of(request)
        return bool(person and person.is_staff and projects_of(request, Role.VIEWER))

    def has_switch_permission(self, request: HttpRequest) -> bool:
        """Allow administrators of any project."""
        return bool(projects_of(request, Role.ADMIN))

    # --- what people decide ---------------------------------------------------------------------

    @action(description=_("Enable"), permissions=["switch"])
    def enable_selected(self, request: HttpRequest, queryset: QuerySet[Agent]) -> None:
        """Return agents to service."""
        count = self._switch_all(request, queryset, AgentMode.ENABLED)
        text = ngettext("%(count)d agent was enabled.", "%(count)d agents were enabled.", count)
        messages.success(request, text % {"count": count})

    @action(description=_("Drain (no new runs)"), permissions=["switch"])
    def drain_selected(self, request: HttpRequest, queryset: QuerySet[Agent]) -> None:
        """Give agents no new runs."""
        count = self._switch_all(request, queryset, AgentMode.DRAINING)
        text = ngettext("%(count)d agent is draining.", "%(count)d agents are draining.", count)
        messages.success(request, text % {"count": count})

    @action(description=_("Disable (no more requests)"), permissions=["switch"])
    def disable_selected(self, request: HttpRequest, queryset: QuerySet[Agent]) -> None:
        """Take agents out of service at once."""
        count = self._switch_all(request, queryset, AgentMode.DISABLED)
        text = ngettext("%(count)d agent was disabled.", "%(count)d agents were disabled.", count)
        messages.success(request, text % {"count": count})

    @action(description=_("Exit (end the process)"), permissions=["switch"])
    @asks_first(verb=_("Exit"), loss=_EXITS, field=_REASON)
    def exit_selected(self, request: HttpRequest, queryset: QuerySet[Agent]) -> None:
        """Ask agents to exit."""
        self._exit_all(request, list(queryset))

    def switch_view(self, request: HttpRequest, pk: int, mode: str) -> HttpResponse:
        """Change the mode by a button on the page of one agent."""
        if not self.has_switch_permission(request):
            raise PermissionDenied
        agent = _agent(pk)
        self._switch_all(request, [agent], AgentMode(mode))
        texts = {
            AgentMode.ENABLED: gettext("Agent %(agent)s is enabled."),
            AgentMode.DRAINING: gettext(
                "Agent %(agent)s is draining: it gets no new runs and continues its present ones."
            ),
            AgentMode.DISABLED: gettext(
                "Agent %(agent)s is disabled: it gets no more requests within 5 s."
            ),
        }
        messages.success(request, texts[AgentMode(mode)] % {"agent": agent})
        return HttpResponseRedirect(reverse("admin:agents_agent_change", args=[pk]))

    def exit_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Ask for confirmation, then ask the agent to exit."""
        if not self.has_switch_permission(request):
            raise PermissionDenied
        agent = _agent(pk)
        back = reverse("admin:agents_agent_change", args=[pk])
        asked = ask_first(
            request,
            verb=gettext("Exit"),
            loss=_EXITS % {"count": 1},
            ids=[pk],
            names=[agent],
            back=back,
            field=_REASON,
        )
        if asked is not None:
            return asked
        self._exit_all(request, [agent])
        return HttpResponseRedirect(back)

    def _exit_all(self, request: HttpRequest, agents: list[Agent]) -> None:
        """Ask each agent to exit; name those that are not alive."""
        reason = request.POST.get("reason", "").strip()[:MOST_REASON]
        actor, now = person_of(request), timezone.now()
        count = do_each(
            request,
            agents,
            lambda agent: exit_agent(agent=agent, reason=reason, actor=actor, now=now),
        )
        if count:
            text = ngettext(
                "%(count)d agent was asked to exit.", "%(count)d agents were asked to exit.", count
            )
            messages.success(request, text % {"count": count})

    def _switch_all(self, request: HttpRequest, agents: Any, mode: AgentMode) -> int:
        now, person = timezone.now(), person_of(request)
        return sum(switch_agent(agent=agent, mode=mode, actor=person, now=now) for agent in agents)


def _cell(agent: Any, name: str) -> SafeString:
    return cast(SafeString, agent.cells.cell(name, agent))


def _agent(pk: int) -> Agent:
    agent = Agent.objects.filter(pk=pk).first()
    if agent is None:
        raise Http404
    return agent
