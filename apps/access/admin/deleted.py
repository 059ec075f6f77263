"""Soft deletion: admins of restorable models, and lists of deleted objects."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin, messages
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _
from unfold.decorators import action

from apps.access.admin.base import ProjectScopedAdmin, shows_refusals
from apps.access.admin.confirm import confirmed
from apps.access.admin.read_only import ReadOnly
from apps.access.models import Restorable

if TYPE_CHECKING:
    _Base = ProjectScopedAdmin
else:
    _Base = object


class RestorableAdmin(_Base):
    """Admin mixin placed before ``ProjectScopedAdmin``: deleting only hides the object, so the
    confirmation page does not list related objects.
    """

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """Return only the objects: related objects are hidden and restored with them."""
        lacking = {
            str(self.opts.verbose_name)
            for obj in objs
            if not self.has_delete_permission(request, obj)
        }
        counts = {str(self.opts.verbose_name_plural): len(objs)}
        return [str(obj) for obj in objs], counts, lacking, []


class DeletedAdmin(ReadOnly, ProjectScopedAdmin):
    """List of deleted objects. A subclass defines ``restores`` and ``restore_object``."""

    list_display: ClassVar[Any] = ("name", "deleted_at", "deleted_by", "ends")
    search_fields = ("name", "deleted_by")
    ordering = ("-deleted_at", "-id")
    actions = ("restore_selected",)
    actions_detail: ClassVar[list[str]] = ["restore"]
    fields: ClassVar[Any] = ("name", "deleted_at", "deleted_by", "ends")
    readonly_fields = ("ends",)

    def restores(self, request: HttpRequest, obj: Any) -> bool:
        """Whether the user may restore the object."""
        raise NotImplementedError

    def restore_object(self, request: HttpRequest, obj: Any) -> None:
        """Restore by the app's service."""
        raise NotImplementedError

    def get_queryset(self, request: HttpRequest) -> QuerySet[Model]:
        """Deleted objects only."""
        return super().get_queryset(request).filter(deleted_at__isnull=False)

    @admin.display(description=_("permanently deleted at"), ordering="deleted_at")
    def ends(self, obj: Restorable) -> datetime | None:
        """Time of permanent deletion."""
        return obj.ends_at

    def has_restore_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Allow the bulk action; it checks the permission for each object."""
        if object_id is None:
            return self.has_view_permission(request)
        obj = self.get_object(request, object_id)
        return obj is not None and self.restores(request, obj)

    @action(description=_("Restore"), permissions=["restore"], url_path="restore")
    @confirmed(_("Restore this, with all that belongs to it?"), verb=_("Restore"))
    @shows_refusals
    def restore(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Restore one object."""
        obj = self.get_queryset(request).get(pk=object_id)
        self.restore_object(request, obj)
        messages.success(request, gettext("“%(name)s” is back.") % {"name": obj})
        opts = self.opts
        return HttpResponseRedirect(reverse(f"admin:{opts.app_label}_{opts.model_name}_changelist"))

    @action(description=_("Restore selected"), permissions=["restore"])
    def restore_selected(self, request: HttpRequest, queryset: QuerySet[Model]) -> None:
        """Restore the selected objects, as far as the user may."""
        chosen = [candidate for candidate in queryset if self.restores(request, candidate)]
        for row in chosen:
            self.restore_object(request, row)
        count = len(chosen)
        text = ngettext("%(count)d is back.", "%(count)d are back.", count)
        messages.success(request, text % {"count": count})
