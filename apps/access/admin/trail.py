"""The audit trail, to read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _
from unfold.contrib.filters.admin import FieldTextFilter, RangeDateTimeFilter

from apps.access.admin.base import ProjectScopedAdmin
from apps.access.admin.filters import VisibleRelatedFilter
from apps.access.admin.read_only import ReadOnly
from apps.access.models import AuditRecord
from apps.access.states import Role

if TYPE_CHECKING:
    from django.utils.safestring import SafeString


def _pretty(value: Any) -> SafeString | str:
    if value is None:
        return "–"
    text = json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True)
    return format_html('<pre class="whitespace-pre-wrap">{}</pre>', text)


@admin.register(AuditRecord)
class AuditRecordAdmin(ReadOnly, ProjectScopedAdmin):
    """For project admins the records of their projects, for superusers all."""

    view_role = Role.ADMIN
    list_display = ("at", "actor_label", "action", "object_label", "object_type", "project", "note")
    list_display_links = ("at",)
    list_select_related = ("project",)
    list_filter = (
        ("at", RangeDateTimeFilter),
        ("actor_label", FieldTextFilter),
        ("project", VisibleRelatedFilter),
        ("object_type", FieldTextFilter),
        ("object_id", FieldTextFilter),
        ("action", FieldTextFilter),
    )
    list_filter_submit = True
    search_fields = ("object_label", "actor_label", "=request_id", "=object_id")
    search_help_text = _("Object, person, request id")
    list_per_page = 50
    fields: ClassVar[Any] = (
        "at",
        "actor_label",
        "token",
        "action",
        ("object_type", "object_id"),
        "object_label",
        "project",
        ("before_text", "after_text"),
        "request_id",
        "note",
    )
    readonly_fields = ("before_text", "after_text")

    @admin.display(description=_("before"))
    def before_text(self, entry: AuditRecord) -> SafeString | str:
        """The values before, indented."""
        return _pretty(entry.before)

    @admin.display(description=_("after"))
    def after_text(self, entry: AuditRecord) -> SafeString | str:
        """The values after, indented."""
        return _pretty(entry.after)
