"""Admin pages of users and groups, for superusers and auditors.

Project admins manage members on the page of their project.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, cast

from django.contrib import admin, messages
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group
from django.db.models import Model
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext
from unfold.decorators import action
from unfold.forms import AdminPasswordChangeForm, UserCreationForm
from unfold.forms import UserChangeForm as ThemeUserChangeForm

from apps.access.admin.base import AuditedAdmin, ProjectScopedInline, person_of, shows_refusals
from apps.access.admin.confirm import confirmed
from apps.access.models import Membership, SecondFactor, User
from apps.access.services import keep_one_admin, password_was_set
from apps.access.services.accounts import keep_decision
from apps.access.services.second_factor import remove_factor
from apps.access.services.sessions import end_sessions

if TYPE_CHECKING:
    from django.forms import ModelForm as DjangoModelForm

    ModelForm = DjangoModelForm[Any]


class SuperuserOnly:
    """Permissions of pages that belong to no project: superusers change, auditors view."""

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Same as the permission to view."""
        return self.has_view_permission(request)

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Superusers and auditors."""
        person = person_of(request)
        return person is not None and person.is_staff and person.sees_everything

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return self._is_superuser(request)

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return self._is_superuser(request)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return self._is_superuser(request)

    @staticmethod
    def _is_superuser(request: HttpRequest) -> bool:
        person = person_of(request)
        return person is not None and person.rules_everything


class UserChangeForm(ThemeUserChangeForm):
    """Theme's form, with a translated hint and a visible link to change the password."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["password"].help_text = format_html(
            '{} <a class="text-link underline" href="../password/">{}</a>',
            _("Passwords cannot be read, only replaced."),
            _("Set a new password"),
        )


class MembershipOfUserInline(SuperuserOnly, ProjectScopedInline):
    """Roles of a user in projects."""

    model = Membership
    fields = ("project", "role")


@admin.register(User)
class UserAdmin(SuperuserOnly, DjangoUserAdmin, AuditedAdmin):  # type: ignore[type-arg]
    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    inlines = (MembershipOfUserInline,)
    actions_detail: ClassVar[list[str]] = ["reset_factor", "log_out"]
    list_display = (
        "username",
        "email",
        "is_active",
        "is_staff",
        "is_auditor",
        "is_superuser",
        "last_login",
    )
    list_filter = ("is_active", "is_staff", "is_auditor", "is_superuser", "memberships__project")
    # Django's filter_horizontal is not accessible and hardly translated to Chinese.
    filter_horizontal = ()
    readonly_fields = ("last_login", "date_joined")
    fieldsets = (
        (None, {"fields": ("username", "password", "must_change_password")}),
        (_("User"), {"fields": ("first_name", "last_name", "email")}),
        (
            _("Permissions"),
            {"fields": ("is_active", "is_staff", "is_auditor", "is_superuser", "groups")},
        ),
        (_("Dates"), {"fields": ("last_login", "date_joined")}),
    )
    add_fieldsets = (
        (
            None,
            {
                "classes": ("wide",),
                "fields": ("username", "usable_password", "password1", "password2"),
            },
        ),
    )

    def save_model(self, request: HttpRequest, obj: Model, form: ModelForm, change: bool) -> None:
        """Save the user; a password set by another person is a one-time password."""
        user = cast(User, obj)
        if change:
            keep_one_admin(user, stays=user.is_active and user.is_superuser)
        else:
            user.must_change_password = user.has_usable_password()
            # A user added here gets access to the admin; what is visible depends on the roles.
            user.is_staff = True
        super().save_model(request, obj, form, change)
        if "is_active" in form.changed_data:
            keep_decision(user)
        if not user.is_active:
            end_sessions(actor=person_of(request), user=user)

    def delete_model(self, request: HttpRequest, obj: Model) -> None:
        """Delete the user, but not the last superuser."""
        keep_one_admin(cast(User, obj), stays=False)
        super().delete_model(request, obj)

    @action(
        description=_("Remove two-factor authentication"), permissions=["reset"], url_path="reset"
    )
    @confirmed(
        _(
            "Remove this user's two-factor authentication? Until it is set up again, the password "
            "is enough to log in."
        ),
        verb=_("Remove"),
    )
    @shows_refusals
    def reset_factor(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Remove the second factor of a user who has lost the phone and the recovery codes."""
        user = User.objects.get(pk=object_id)
        remove_factor(actor=cast(User, person_of(request)), user=user)
        messages.success(request, _("Two-factor authentication has been removed."))
        return HttpResponseRedirect(reverse("admin:access_user_change", args=[object_id]))

    @action(description=_("End all sessions"), permissions=["log_out"], url_path="log-out")
    @confirmed(_("End every session of this user? They have to log in again."), verb=_("End"))
    @shows_refusals
    def log_out(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """End all sessions of the user."""
        user = User.objects.get(pk=object_id)
        own = request.session.session_key if person_of(request) == user else None
        count = end_sessions(actor=person_of(request), user=user, but=own)
        text = ngettext("%(count)d session has ended.", "%(count)d sessions have ended.", count)
        messages.success(request, text % {"count": count})
        return HttpResponseRedirect(reverse("admin:access_user_change", args=[object_id]))

    def has_log_out_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return self._is_superuser(request)

    def has_reset_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Whether the second factor may be reset: by a superuser, if the user has one."""
        if object_id is None or not self._is_superuser(request):
            return False
        user = self.get_object(request, object_id)
        return user is not None and SecondFactor.objects.filter(user=user).exists()

    def user_change_password(
        self,
        request: HttpRequest,
        id: str,  # noqa: A002 - Django passes it by this name
        form_url: str = "",
    ) -> HttpResponse:
        """Django's page; the user must choose another password at the next login."""
        old = self.get_object(request, id)
        response = super().user_change_password(request, id, form_url)
        new = self.get_object(request, id)
        if old is not None and new is not None and new.password != old.password:
            actor = person_of(request)
            own = request.session.session_key if actor == new else None
            password_was_set(actor=actor, user=new, but=own)
        return response


admin.site.unregister(Group)


@admin.register(Group)
class GroupAdmin(SuperuserOnly, DjangoGroupAdmin, AuditedAdmin):  # type: ignore[misc]
    """Groups of Django permissions, for pages that belong to no project."""

    filter_horizontal = ()
