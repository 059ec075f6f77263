"""Read-only admin of the statistics of runs: the search over all runs."""

from __future__ import annotations

import contextlib
from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display

from apps.access.admin import ProjectScopedAdmin
from apps.access.admin.filters import VisibleRelatedFilter
from apps.access.admin.read_only import ReadOnly
from apps.queuestats.models import RunStats
from apps.queuestats.querysets import StatCondition


@admin.register(RunStats)
class RunStatsAdmin(ReadOnly, ProjectScopedAdmin):
    """List of runs by the statistics of their framework."""

    list_display = ("run_link", "project", "finish_reason", "requests", "items", "updated_at")
    list_display_links = None
    list_select_related = ("run__job", "project")
    list_filter = (("project", VisibleRelatedFilter), ("run__job", VisibleRelatedFilter))
    list_filter_submit = True
    search_fields = ("stats",)
    search_help_text = _(
        "A statistic such as retry/count, or a condition such as retry/count > 10."
    )
    list_per_page = 50
    ordering = ("-run",)
    fields = ("run", "project", "stats", "updated_at")

    def get_search_results(
        self, request: HttpRequest, queryset: Any, search_term: str
    ) -> tuple[Any, bool]:
        """Find runs by the value of one statistic; text that is no condition finds none."""
        if not search_term.strip():
            return queryset, False
        with contextlib.suppress(ValueError):
            return queryset.where(StatCondition.parse(search_term)), False
        return queryset.none(), False

    @display(description=_("run"), ordering="run")
    def run_link(self, row: RunStats) -> SafeString:
        """Link to the run."""
        url = reverse("dashboard:run", args=[row.run_id])
        return format_html('<a href="{}">#{} {}</a>', url, row.run_id, row.run.job.name)

    @display(description=_("finish reason"))
    def finish_reason(self, row: RunStats) -> str:
        return str(row.stats.get("finish_reason") or "–")

    @display(description=_("requests"))
    def requests(self, row: RunStats) -> str:
        return str(row.stats.get("downloader/request_count", "–"))

    @display(description=_("items"))
    def items(self, row: RunStats) -> str:
        return str(row.stats.get("item_scraped_count", "–"))
