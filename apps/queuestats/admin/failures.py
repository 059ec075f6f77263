"""Read-only admin of failed requests."""

from __future__ import annotations

from django.contrib import admin
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _
from unfold.contrib.filters.admin import FieldTextFilter
from unfold.decorators import display

from apps.access.admin import ProjectScopedAdmin
from apps.access.admin.filters import VisibleRelatedFilter
from apps.access.admin.read_only import ReadOnly
from apps.queuestats.models import FailedRequest


@admin.register(FailedRequest)
class FailedRequestAdmin(ReadOnly, ProjectScopedAdmin):
    """List of permanently failed requests; ``?owner=run:7`` limits it to one run."""

    list_display = ("address", "status", "reason", "belongs_to", "project", "at")
    list_display_links = None
    list_select_related = ("project",)
    list_filter = (("owner", FieldTextFilter), ("project", VisibleRelatedFilter))
    list_filter_submit = True
    search_fields = ("url", "reason", "=owner")
    search_help_text = _("URL, reason, or run such as run:7")
    list_per_page = 100
    ordering = ("-id",)
    fields = ("project", "owner", "url", "status", "reason", "at")

    @display(description=_("address"), ordering="url")
    def address(self, failure: FailedRequest) -> SafeString:
        """The full URL; not a link, because it may point into a private network."""
        return format_html('<span class="break-all">{}</span>', failure.url)

    @display(description=_("run"), ordering="owner")
    def belongs_to(self, failure: FailedRequest) -> SafeString | str:
        """Link to the run, if the owner is a run."""
        kind, _separator, number = failure.owner.partition(":")
        if kind != "run" or not number.isdecimal():
            return failure.owner
        return format_html('<a href="{}">#{}</a>', reverse("dashboard:run", args=[number]), number)
