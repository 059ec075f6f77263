"""Base classes: who sees and changes what derives from the project, and every change is recorded.

Another app's admin sets nothing more than the roles it wants other than the defaults::

    @admin.register(Job)
    class JobAdmin(ProjectScopedAdmin):
        list_select_related = ("project",)
        delete_role = Role.ADMIN

Its model's manager must come from a ``VisibleQuerySet``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, ParamSpec, cast

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db.models import ForeignKey, ManyToManyField, Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from unfold.admin import TabularInline

from apps.access.admin.lists import CarefulAdmin
from apps.access.errors import DomainError
from apps.access.querysets import VisibleQuerySet
from apps.access.services import (
    AllProjects,
    changes,
    person_of,
    project_id_of,
    projects_of,
    record,
    role_to_read,
    snapshot,
)
from apps.access.states import Role

if TYPE_CHECKING:
    from django.contrib.admin.models import LogEntry
    from django.forms import BaseModelFormSet
    from django.forms import ModelForm as DjangoModelForm
    from django.forms.fields import Field as FormField

    ModelForm = DjangoModelForm[Any]
    FormSet = BaseModelFormSet[Any, Any]

__all__ = [
    "AuditedAdmin",
    "ProjectScopedAdmin",
    "ProjectScopedInline",
    "person_of",
    "projects_of",
    "shows_refusals",
]

P = ParamSpec("P")
Page = Callable[Concatenate[Any, HttpRequest, P], HttpResponse]
_BEFORE = "_audit_before"


def shows_refusals(page: Page[P]) -> Page[P]:
    """Decorator of views and actions: a ``DomainError`` becomes a message on the same page."""

    @wraps(page)
    def answer(self: Any, request: HttpRequest, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        try:
            return page(self, request, *args, **kwargs)
        except DomainError as error:
            messages.error(request, error.text)
            return HttpResponseRedirect(request.get_full_path())

    return cast("Page[P]", answer)


class AuditedAdmin(CarefulAdmin):
    """Writes an ``AuditRecord`` for each add, change and delete; Django's own log is not kept."""

    def audit_action(self, verb: str, obj: Model) -> str:
        """Return the name of the audit action, ``"jobs.add_job"``."""
        return f"{obj._meta.app_label}.{verb}_{obj._meta.model_name}"

    @shows_refusals
    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Show the form; an error of a service is shown, and nothing is saved."""
        return cast(HttpResponse, super().changeform_view(request, *args, **kwargs))

    @shows_refusals
    def changelist_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Show the list and run bulk actions; an error of a service is shown."""
        return super().changelist_view(request, *args, **kwargs)

    @shows_refusals
    def delete_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Ask before deleting; an error of a service is shown."""
        return cast(HttpResponse, super().delete_view(request, *args, **kwargs))

    def save_model(self, request: HttpRequest, obj: Model, form: ModelForm, change: bool) -> None:
        """Save, and keep the previous values for ``save_related``."""
        if change:
            stored = type(obj)._default_manager.filter(pk=obj.pk).first()
            before = {} if stored is None else self._state_of(stored)
        else:
            before = {}
        setattr(request, _BEFORE, before)
        super().save_model(request, obj, form, change)

    def save_related(
        self, request: HttpRequest, form: ModelForm, formsets: Any, change: bool
    ) -> None:
        """Save related objects, then write one audit record of the whole change."""
        super().save_related(request, form, formsets, change)
        obj = form.instance
        before, after = changes(getattr(request, _BEFORE, {}), self._state_of(obj))
        if change and not before and not after:
            return
        record(
            actor=person_of(request),
            action=self.audit_action("change" if change else "add", obj),
            obj=obj,
            before=before if change else None,
            after=after,
        )

    def save_formset(
        self, request: HttpRequest, form: ModelForm, formset: FormSet, change: bool
    ) -> None:
        """Save the rows of an inline; each gets its own audit record."""
        stored = {
            obj.pk: self._state_of(type(obj)._default_manager.get(pk=obj.pk))
            for obj in (row.instance for row in formset.initial_forms if row.has_changed())
            if obj.pk is not None
        }
        doomed = [row.instance for row in getattr(formset, "deleted_forms", []) if row.instance.pk]
        for obj in doomed:
            self._record(request, "delete", obj, before=stored.get(obj.pk), after=None)
        super().save_formset(request, form, formset, change)
        for obj, _fields in formset.changed_objects:
            before, after = changes(stored.get(obj.pk, {}), self._state_of(obj))
            self._record(request, "change", obj, before=before, after=after)
        for obj in formset.new_objects:
            self._record(request, "add", obj, before=None, after=self._state_of(obj))

    def delete_model(self, request: HttpRequest, obj: Model) -> None:
        """Write the audit record, then delete: afterwards the object has no id."""
        self._record(request, "delete", obj, before=self._state_of(obj), after=None)
        super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Model]) -> None:
        """Delete selected objects one by one, so that each gets an audit record."""
        for obj in queryset:
            self.delete_model(request, obj)

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> LogEntry | None:
        """Do nothing: ``save_related`` has written the audit record."""
        return None

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> LogEntry | None:
        """Do nothing: ``save_related`` has written the audit record."""
        return None

    def log_deletions(self, request: HttpRequest, queryset: Any) -> list[LogEntry]:
        """Do nothing: ``delete_model`` writes the audit records."""
        return []

    def _record(
        self,
        request: HttpRequest,
        verb: str,
        obj: Model,
        *,
        before: dict[str, Any] | None,
        after: dict[str, Any] | None,
    ) -> None:
        record(
            actor=person_of(request),
            action=self.audit_action(verb, obj),
            obj=obj,
            before=before,
            after=after,
        )

    def _state_of(self, obj: Model) -> dict[str, Any]:
        state = snapshot(obj)
        for field in obj._meta.many_to_many:
            if isinstance(field, ManyToManyField) and obj.pk is not None:
                state[field.name] = sorted(field.value_from_object(obj), key=lambda each: each.pk)
                state[field.name] = [related.pk for related in state[field.name]]
        return state


class _ScopedMixin:
    """Permissions of an admin or an inline, derived from the user's role in the project."""

    view_role: ClassVar[Role] = Role.VIEWER
    add_role: ClassVar[Role] = Role.EDITOR
    change_role: ClassVar[Role] = Role.EDITOR
    delete_role: ClassVar[Role] = Role.EDITOR
    model: type[Model]

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Require the view role in the object's project; without an object, in any project."""
        return self._may(request, role_to_read(request.user, self.view_role), obj)

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Require the change role in the object's project; without an object, in any project."""
        return self._may(request, self.change_role, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Require the delete role in the object's project; without an object, in any project."""
        return self._may(request, self.delete_role, obj)

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Require the add role in any project; the object's own project is checked on save."""
        return self._may(request, self.add_role, None)

    def formfield_for_foreignkey(
        self, db_field: ForeignKey[Any, Any], request: HttpRequest, **kwargs: Any
    ) -> FormField | None:
        """Offer only related objects of projects where the user has the add role."""
        manager = db_field.remote_field.model._default_manager
        if "queryset" not in kwargs and isinstance(manager.all(), VisibleQuerySet):
            rows = cast(VisibleQuerySet[Model], manager.all())
            kwargs["queryset"] = rows.visible_to(request.user, self.add_role)
        return cast(
            "FormField | None",
            super().formfield_for_foreignkey(db_field, request, **kwargs),  # type: ignore[misc]
        )

    def _may(self, request: HttpRequest, role: Role, obj: Model | None) -> bool:
        person = person_of(request)
        if person is None or not person.is_active or not person.is_staff:
            return False
        projects = projects_of(request, role)
        if obj is None or obj.pk is None:
            return bool(projects)
        return isinstance(projects, AllProjects) or project_id_of(obj) in projects


class ProjectScopedAdmin(_ScopedMixin, AuditedAdmin):
    """Admin of rows that belong to a project: filtered by ``visible_to``, permitted by roles."""

    show_full_result_count = False

    def has_module_permission(self, request: HttpRequest) -> bool:
        """List the app for users who may view at least one of its objects."""
        return self.has_view_permission(request)

    def has_operate_permission(self, request: HttpRequest) -> bool:
        """Require the operate role in any project."""
        return bool(projects_of(request, Role.OPERATOR))

    def get_queryset(self, request: HttpRequest) -> QuerySet[Model]:
        """Rows of projects where the user has the view role."""
        rows = super().get_queryset(request)
        return cast(VisibleQuerySet[Model], rows).visible_to(
            request.user, role_to_read(request.user, self.view_role)
        )

    def save_model(self, request: HttpRequest, obj: Model, form: ModelForm, change: bool) -> None:
        """Refuse to save an object into a project where the user lacks the role."""
        projects = projects_of(request, self.change_role if change else self.add_role)
        if not isinstance(projects, AllProjects) and project_id_of(obj) not in projects:
            raise PermissionDenied
        super().save_model(request, obj, form, change)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Model]) -> None:
        """Check the role for each object: the list also contains objects that are only visible."""
        rows = list(queryset)
        if not all(self.has_delete_permission(request, obj) for obj in rows):
            raise PermissionDenied
        for obj in rows:
            self.delete_model(request, obj)


class ProjectScopedInline(_ScopedMixin, TabularInline):
    """Inline of an object's page, permitted by the same roles."""

    extra = 0

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Require the add role in the project of the parent object."""
        return self._may(request, self.add_role, obj)
