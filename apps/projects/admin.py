"""Projects and their members."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, cast

from django import forms
from django.contrib import admin
from django.db.models import Count, Model, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from unfold.widgets import UnfoldAdminTextareaWidget

from apps.access.admin.base import ProjectScopedAdmin, ProjectScopedInline, person_of
from apps.access.models import Membership
from apps.access.states import Role
from apps.projects.models import Project
from apps.projects.services import refuse_default

if TYPE_CHECKING:
    _ModelForm = forms.ModelForm[Project]
else:
    _ModelForm = forms.ModelForm


class NetworksField(forms.JSONField):
    """One network a line, instead of JSON."""

    widget = UnfoldAdminTextareaWidget

    def prepare_value(self, value: Any) -> Any:
        """As lines."""
        return "\n".join(map(str, value)) if isinstance(value, list) else value

    def bound_data(self, data: Any, initial: Any) -> Any:
        """What was typed."""
        return data

    def to_python(self, value: Any) -> Any:
        """Lines or a list."""
        if isinstance(value, list):
            return value
        return [line.strip() for line in (value or "").splitlines() if line.strip()]

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Compare lists, not texts."""
        return bool((initial or []) != self.to_python(data))


class ProjectForm(_ModelForm):
    """The networks as lines."""

    allowed_networks = NetworksField(
        label=_("Allowed networks"),
        required=False,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 4}),
        help_text=_(
            "Networks that downloads of this project may reach besides public addresses, "
            "one a line, such as 10.20.0.0/16."
        ),
    )

    class Meta:
        model = Project
        fields = ("name", "slug", "description", "allowed_networks")


class MemberInline(ProjectScopedInline):
    """Who has which role here; for admins of the project."""

    model = Membership
    view_role = Role.ADMIN
    add_role = Role.ADMIN
    change_role = Role.ADMIN
    delete_role = Role.ADMIN
    fields = ("user", "role")
    verbose_name = _("member")
    verbose_name_plural = _("members")


@admin.register(Project)
class ProjectAdmin(ProjectScopedAdmin):
    """Made and deleted by superusers, kept by the project's admins."""

    form = ProjectForm
    add_role = Role.ADMIN
    change_role = Role.ADMIN
    delete_role = Role.ADMIN
    inlines = (MemberInline,)
    list_display = ("name", "slug", "description", "members", "created_at")
    search_fields = ("name", "slug", "description")
    prepopulated_fields: ClassVar[dict[str, tuple[str, ...]]] = {"slug": ("name",)}
    readonly_fields = ("created_at", "updated_at")
    fields = ("name", "slug", "description", "allowed_networks", "created_at", "updated_at")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Model]:
        """With the number of members, counted in the same query."""
        rows = super().get_queryset(request)
        return cast("QuerySet[Model]", rows.annotate(member_count=Count("memberships")))

    @admin.display(description=_("members"), ordering="member_count")
    def members(self, project: Any) -> int:
        """How many people have a role here."""
        count: int = project.member_count
        return count

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """A new project is nobody's yet, so only who sees everything may make one."""
        person = person_of(request)
        return person is not None and person.sees_everything

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Like making one."""
        return self.has_add_permission(request)

    def get_prepopulated_fields(
        self, request: HttpRequest, obj: Model | None = None
    ) -> dict[str, Any]:
        """Only where the form can be edited: Django looks for the fields."""
        if obj is not None:
            return {}
        return dict(self.prepopulated_fields)

    def delete_model(self, request: HttpRequest, obj: Model) -> None:
        """Not the default project."""
        refuse_default(obj)
        super().delete_model(request, obj)
