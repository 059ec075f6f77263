"""Admin of planned runs."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _
from unfold.contrib.filters.admin import RangeDateTimeFilter
from unfold.decorators import display

from apps.access.admin import ProjectScopedAdmin
from apps.access.admin.filters import VisibleRelatedFilter
from apps.access.admin.read_only import ReadOnly
from apps.jobs.models import PlannedRun
from apps.jobs.states import PlanOutcome

TONES = {
    PlanOutcome.STARTED: "success",
    PlanOutcome.LATE: "warning",
    PlanOutcome.CAUGHT_UP: "info",
    PlanOutcome.SKIPPED: "default",
    PlanOutcome.MISSED: "danger",
}


@admin.register(PlannedRun)
class PlannedRunAdmin(ReadOnly, ProjectScopedAdmin):
    """Read-only list of planned times with their outcomes, such as started, late or missed."""

    list_display = ("planned_at", "job_link", "outcome_label", "reason", "run_link", "decided_at")
    list_filter = (
        ("schedule__job", VisibleRelatedFilter),
        "outcome",
        ("planned_at", RangeDateTimeFilter),
    )
    list_filter_submit = True
    list_select_related = ("schedule__job", "run")
    search_fields = ("schedule__job__name", "reason")
    list_per_page = 50
    list_before_template = "admin/jobs/plannedrun/list_head.html"
    fields = ("job_link", "planned_at", "outcome", "reason", "run_link", "decided_at")

    class Media:
        css = {"all": ["dashboard/dashboard.css", "datasets/datasets.css"]}

    @display(description=_("job"), ordering="schedule__job__name")
    def job_link(self, row: PlannedRun) -> SafeString:
        job = row.schedule.job
        return format_html('<a href="{}">{}</a>', reverse("dashboard:job", args=[job.pk]), job.name)

    @display(description=_("run"), ordering="run_id")
    def run_link(self, row: PlannedRun) -> SafeString | str:
        if row.run_id is None:
            return ""
        address = reverse("dashboard:run", args=[row.run_id])
        return format_html('<a href="{}">#{}</a>', address, row.run_id)

    @display(description=_("outcome"), ordering="outcome", label=TONES)
    def outcome_label(self, row: PlannedRun) -> tuple[str, Any]:
        """Outcome with its colour."""
        return row.outcome, row.get_outcome_display()
