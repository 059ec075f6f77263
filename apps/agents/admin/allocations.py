"""Agent assignments in the admin, read-only."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display

from apps.access.admin import ProjectScopedAdmin
from apps.access.admin.filters import VisibleRelatedFilter
from apps.access.admin.read_only import ReadOnly
from apps.agents.models import Allocation
from apps.agents.queries import run_of
from apps.runtime.fields import MASK


@admin.register(Allocation)
class AllocationAdmin(ReadOnly, ProjectScopedAdmin):
    """Which agents serve which run; written by the center only."""

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
    search_help_text = _("Owner, such as run:7")
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
        """Prefetch the agents."""
        return super().get_queryset(request).prefetch_related("agents")

    @display(description=_("run"), ordering="owner")
    def belongs_to(self, allocation: Allocation) -> SafeString | str:
        """Return a link to the run, if a run is the owner."""
        run = run_of(allocation)
        if run is None:
            return allocation.owner
        return format_html('<a href="{}">#{}</a>', reverse("dashboard:run", args=[run]), run)

    @display(description=_("agents"))
    def given(self, allocation: Allocation) -> str:
        """Return the names of the agents."""
        return ", ".join(str(agent) for agent in allocation.agents.all()) or "–"

    @display(description=_("state"), label={"open": "info", "released": "default"})
    def state(self, allocation: Allocation) -> tuple[str, Any]:
        """Return "open" until the run releases its agents."""
        if allocation.released_at is None:
            return "open", _("open")
        return "released", _("released")

    @display(description=_("settings"))
    def settings_text(self, allocation: Allocation) -> SafeString:
        """Return the settings of the downloaders; cookies are secret and stay sealed."""
        settings = dict(allocation.settings)
        if allocation.__dict__["cookies"]:
            settings["cookies"] = MASK
        text = json.dumps(settings, indent=2, ensure_ascii=False)
        return format_html('<pre class="whitespace-pre-wrap">{}</pre>', text)
