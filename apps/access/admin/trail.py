"""Admin of the audit trail: action, actor, object, values before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext_lazy as _
from unfold.contrib.filters.admin import (
    DropdownFilter,
    FieldTextFilter,
    RangeDateTimeFilter,
    TextFilter,
)

from apps.access.admin.base import ProjectScopedAdmin
from apps.access.admin.filters import VisibleRelatedFilter
from apps.access.admin.read_only import ReadOnly
from apps.access.models import AuditRecord
from apps.access.queries import (
    KIND,
    NOTHING,
    OBJECT,
    changed_fields,
    kind_label,
    kinds,
    model_of,
    short_changes,
)
from apps.access.states import Role

if TYPE_CHECKING:
    from django.utils.safestring import SafeString


def page_of(object_type: str, object_id: str) -> str:
    """URL of the object's page, "" if it has none."""
    model = model_of(object_type)
    if model is None or not object_id or model not in admin.site._registry:
        return ""
    try:
        return reverse(
            f"admin:{model._meta.app_label}_{model._meta.model_name}_change", args=[object_id]
        )
    except NoReverseMatch:
        return ""


class KindFilter(DropdownFilter):
    """Exact filter by type of object."""

    title = _("kind of object")
    parameter_name = KIND

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """All types of objects in the trail, translated, including the selected one."""
        choices, selected = kinds(), request.GET.get(KIND, "")
        known = {model_label for model_label, _words in choices}
        return (
            [*choices, (selected, kind_label(selected))]
            if selected and selected not in known
            else choices
        )

    def queryset(self, request: HttpRequest, queryset: QuerySet[Model]) -> QuerySet[Model]:
        """Records about objects of that type."""
        return queryset.filter(object_type=self.value()) if self.value() else queryset


class ObjectFilter(TextFilter):
    """Exact filter by object id: a search for 7 would also find 17."""

    title = _("id of the object")
    parameter_name = OBJECT

    def queryset(self, request: HttpRequest, queryset: QuerySet[Model]) -> QuerySet[Model]:
        """Records about that object."""
        return queryset.filter(object_id=self.value().strip()) if self.value() else queryset


@admin.register(AuditRecord)
class AuditRecordAdmin(ReadOnly, ProjectScopedAdmin):
    """Read-only audit trail: project admins see their projects, superusers all records."""

    view_role = Role.ADMIN
    list_display = ("at", "person", "action", "about", "summary", "project", "note")
    list_display_links = ("at",)
    list_select_related = ("project", "token")
    list_filter = (
        ("at", RangeDateTimeFilter),
        ("actor_label", FieldTextFilter),
        KindFilter,
        ObjectFilter,
        ("action", FieldTextFilter),
        ("project", VisibleRelatedFilter),
    )
    list_filter_submit = True
    search_fields = ("object_label", "actor_label", "=request_id", "=object_id")
    search_help_text = _("Object, person, request id")
    list_per_page = 50
    list_before_template = "admin/access/auditrecord/list_head.html"
    fields: ClassVar[Any] = (
        ("at", "person"),
        ("action", "about"),
        "changes_table",
        ("project", "request_id"),
        "note",
    )
    readonly_fields = ("person", "about", "changes_table")

    class Media:
        css = {"all": ["dashboard/dashboard.css", "access/trail.css"]}

    def changelist_view(self, request: HttpRequest, /, *args: Any, **kwargs: Any) -> HttpResponse:
        """Show the list; the history of one object gets its name as title."""
        kind, number = request.GET.get(KIND, ""), request.GET.get(OBJECT, "")
        extra = dict(kwargs.pop("extra_context", None) or {})
        if kind and number:
            extra["history_of"] = {
                "kind": kind_label(kind),
                "number": number,
                "page": page_of(kind, number),
            }
        return super().changelist_view(request, *args, extra_context=extra, **kwargs)

    @admin.display(description=_("person"), ordering="actor_label")
    def person(self, entry: AuditRecord) -> SafeString | str:
        """User, and the token that was used."""
        if entry.token is None:
            return entry.actor_label
        return format_html(
            '{} <span class="cy-subtle">{}</span>', entry.actor_label, entry.token.name
        )

    @admin.display(description=_("object"), ordering="object_label")
    def about(self, entry: AuditRecord) -> SafeString:
        """Object with links to its page and its history."""
        address = page_of(entry.object_type, entry.object_id)
        name = entry.object_label or entry.object_id or NOTHING
        shown = format_html('<a class="cy-strong" href="{}">{}</a>', address, name)
        return format_html(
            '<span class="cy-about">{} <span class="cy-subtle">{} {}</span></span>',
            shown if address else name,
            kind_label(entry.object_type),
            entry.object_id,
        )

    @admin.display(description=_("changes"))
    def summary(self, entry: AuditRecord) -> SafeString:
        """First changed fields."""
        return format_html_join("", '<div class="cy-change">{}</div>', _each(short_changes(entry)))

    @admin.display(description=_("changes"))
    def changes_table(self, entry: AuditRecord) -> str:
        """All fields before and after; long texts as a line diff."""
        context = {"fields": changed_fields(entry), "entry": entry}
        return render_to_string("admin/access/auditrecord/changes.html", context)


def _each(texts: list[str]) -> list[tuple[str]]:
    return [(text,) for text in texts]
