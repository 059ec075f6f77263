"""Admin of imports: every run of every source, with its record counts."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display

from apps.access.admin import ProjectScopedAdmin
from apps.access.admin.filters import VisibleRelatedFilter
from apps.access.admin.read_only import ReadOnly
from apps.sources.admin.words import gap_text, lasting, note_text
from apps.sources.models import Harvest

TONES = {
    "running": "info",
    "completed": "success",
    "interrupted": "warning",
    "stopped": "warning",
    "failed": "danger",
}


@admin.register(Harvest)
class HarvestAdmin(ReadOnly, ProjectScopedAdmin):
    """Read-only: collectors write these rows."""

    list_display = ("source_of", "status", "range_of", "counts", "duration", "started_at")
    list_filter = (("project", VisibleRelatedFilter), "state", "reason")
    list_filter_submit = True
    list_select_related = ("project",)
    search_fields = ("source", "error", "collector")
    search_help_text = _("Source, collector, error")
    list_per_page = 50
    date_hierarchy = "started_at"
    fieldsets: ClassVar = (
        (
            None,
            {
                "fields": (
                    ("project", "source"),
                    ("state", "reason"),
                    ("started_at", "ended_at", "duration"),
                    ("collector", "asked_by"),
                    ("resumed", "first", "config_version"),
                    "error",
                )
            },
        ),
        (
            _("Range"),
            {"fields": (("total", "start_offset", "end_offset", "next_offset"), "skipped")},
        ),
        (
            _("Record counts"),
            {
                "fields": (
                    ("batches", "read"),
                    ("published", "filtered", "re_read", "refused"),
                    "bad_dates",
                    "remarks",
                )
            },
        ),
    )

    class Media:
        css: ClassVar = {"all": ["dashboard/dashboard.css", "jobs/jobs.css"]}

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        names: list[str] = []
        for _title, options in self.fieldsets:
            for option in options["fields"]:
                names += [option] if isinstance(option, str) else option
        return tuple(names)

    @display(description=_("source"), ordering="source")
    def source_of(self, harvest: Harvest) -> SafeString:
        """Name of the source and of its project."""
        return format_html(
            '<strong>{}</strong> <span class="cy-subtle">{}</span>', harvest.source, harvest.project
        )

    @display(description=_("state"), ordering="state", label=TONES)
    def status(self, harvest: Harvest) -> tuple[str, Any]:
        """State, and why the import ended."""
        if harvest.reason:
            return harvest.state, harvest.get_reason_display()
        return harvest.state, harvest.get_state_display()

    @display(description=_("offsets"))
    def range_of(self, harvest: Harvest) -> str:
        """Range of offsets, from the newest record to the oldest."""
        if harvest.start_offset is None or harvest.end_offset is None:
            return "–"
        return f"{harvest.start_offset:,} → {harvest.end_offset:,}"

    @display(description=_("read = published + too old + already imported + rejected"))
    def counts(self, harvest: Harvest) -> SafeString:
        """Record counts; each record is counted once."""
        return format_html(
            '<span class="cy-figure-cell">{} = {} + {} + {} + {}</span>',
            f"{harvest.read:,}",
            f"{harvest.published:,}",
            f"{harvest.filtered:,}",
            f"{harvest.re_read:,}",
            f"{harvest.refused:,}",
        )

    @display(description=_("duration"))
    def duration(self, harvest: Harvest) -> str:
        """Duration from start to end."""
        if harvest.ended_at is None:
            return "–"
        return lasting((harvest.ended_at - harvest.started_at).total_seconds())

    @display(description=_("skipped records"))
    def skipped(self, harvest: Harvest) -> str:
        """Offsets that were not read, with the reasons."""
        return "; ".join(gap_text(gap) for gap in harvest.gaps) or "–"

    @display(description=_("notes"))
    def remarks(self, harvest: Harvest) -> str:
        """Remarks that the import recorded."""
        return " ".join(note_text(note) for note in harvest.notes) or "–"
