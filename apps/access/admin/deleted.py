"""Deleting what can be restored, and the lists from which it is."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin, messages
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext
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
    """Placed before ``ProjectScopedAdmin``: deleting hides the object alone, so the page that asks
    names it alone.
    """

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """The objects; what hangs on them is hidden with them and comes back with them."""
        lacking = {
            str(self.opts.verbose_name)
            for each in objs
            if not self.has_delete_permission(request, each)
        }
        counts = {str(self.opts.verbose_name_plural): len(objs)}
        return [str(each) for each in objs], counts, lacking, []


class DeletedAdmin(ReadOnly, ProjectScopedAdmin):
    """A list of what was deleted. A subclass says who restores (``restores``) and how."""

    list_display: ClassVar[Any] = ("name", "deleted_at", "deleted_by", "ends")
    search_fields = ("name", "deleted_by")
    ordering = ("-deleted_at", "-id")
    actions = ("restore_selected",)
    actions_detail: ClassVar[list[str]] = ["restore"]
    fields: ClassVar[Any] = ("name", "deleted_at", "deleted_by", "ends")
    readonly_fields = ("ends",)

    def restores(self, request: HttpRequest, obj: Any) -> bool:
        """Whether the person may restore it."""
        raise NotImplementedError

    def restore_object(self, request: HttpRequest, obj: Any) -> None:
        """Call the service."""
        raise NotImplementedError

    def get_queryset(self, request: HttpRequest) -> QuerySet[Model]:
        """Only what is deleted."""
        return super().get_queryset(request).filter(deleted_at__isnull=False)

    @admin.display(description=_("deleted for good at"), ordering="deleted_at")
    def ends(self, obj: Restorable) -> datetime | None:
        """The end of the time in which it can be restored."""
        return obj.ends_at

    def has_restore_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """For the bulk action each object is asked about by itself."""
        if object_id is None:
            return self.has_view_permission(request)
        obj = self.get_object(request, object_id)
        return obj is not None and self.restores(request, obj)

    @action(description=_("Restore"), permissions=["restore"], url_path="restore")
    @confirmed(_("Restore this, with all that belongs to it?"), verb=_("Restore"))
    @shows_refusals
    def restore(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show it again."""
        obj = self.get_queryset(request).get(pk=object_id)
        self.restore_object(request, obj)
        messages.success(request, _now("“%(name)s” is back.") % {"name": obj})
        opts = self.opts
        return HttpResponseRedirect(reverse(f"admin:{opts.app_label}_{opts.model_name}_changelist"))

    @action(description=_("Restore selected"), permissions=["restore"])
    def restore_selected(self, request: HttpRequest, queryset: QuerySet[Model]) -> None:
        """Those that the person may restore."""
        chosen = [each for each in queryset if self.restores(request, each)]
        for each in chosen:
            self.restore_object(request, each)
        count = len(chosen)
        text = ngettext("%(count)d is back.", "%(count)d are back.", count)
        messages.success(request, text % {"count": count})
