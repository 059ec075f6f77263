"""API tokens: the secret is shown once, on the page that answers the form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, cast

from django import forms
from django.contrib import admin, messages
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext
from unfold.decorators import action, display
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget

from apps.access.admin.base import AuditedAdmin, person_of, shows_refusals
from apps.access.admin.confirm import confirmed
from apps.access.models import ApiToken, User
from apps.access.querysets import VisibleQuerySet
from apps.access.services import create_token, known_areas, revoke_token
from apps.access.states import Access

if TYPE_CHECKING:
    from django.db.models import ForeignKey

    _ModelForm = forms.ModelForm[ApiToken]
else:
    _ModelForm = forms.ModelForm


def scope_choices() -> list[tuple[str, str]]:
    """Every scope with its name, those for all areas first."""
    choices = []
    for area in known_areas():
        name = _now("everything") if area == "*" else area
        choices += [(f"{area}:{access}", f"{access.label}: {name}") for access in Access]
    return choices


class TokenForm(_ModelForm):
    """Scopes as check boxes."""

    scopes = forms.MultipleChoiceField(
        label=_("Scopes"),
        choices=scope_choices,
        initial=["*:read"],
        widget=UnfoldAdminCheckboxSelectMultipleWidget,
        help_text=_("What programs with this token may do; write includes read."),
    )

    class Meta:
        model = ApiToken
        fields = ("name", "project", "scopes", "expires_at")

    def clean_expires_at(self) -> Any:
        """Only a time to come."""
        expires_at = self.cleaned_data["expires_at"]
        if expires_at is not None and expires_at <= timezone.now():
            raise forms.ValidationError(_("This time has passed."))
        return expires_at


@admin.register(ApiToken)
class ApiTokenAdmin(AuditedAdmin):
    """One's own tokens; superusers see and revoke everybody's."""

    form = TokenForm
    list_display = ("name", "prefix", "user", "project", "state", "expires_at", "last_used_at")
    list_select_related = ("user", "project")
    search_fields = ("name", "prefix", "user__username")
    actions = ("revoke_selected",)
    actions_detail: ClassVar[list[str]] = ["revoke"]
    show_full_result_count = False

    @display(
        description=_("state"),
        label={"active": "success", "expired": "warning", "revoked": "danger"},
    )
    def state(self, token: ApiToken) -> tuple[str, str]:
        """Usable or not, and why not."""
        if token.revoked_at is not None:
            return "revoked", _now("revoked")
        if not token.usable(timezone.now()):
            return "expired", _now("expired")
        return "active", _now("active")

    def get_queryset(self, request: HttpRequest) -> QuerySet[ApiToken]:
        """All of them for those who see everything, else one's own."""
        rows = cast("QuerySet[ApiToken]", super().get_queryset(request))
        person = person_of(request)
        if person is None:
            return rows.none()
        return rows if person.sees_everything else rows.filter(user=person)

    def get_list_filter(self, request: HttpRequest) -> tuple[str, ...]:
        """By person, where there are several."""
        person = person_of(request)
        return ("user",) if person is not None and person.sees_everything else ()

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Every person of the admin."""
        return self.has_view_permission(request)

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """One's own, or all for those who see everything."""
        person = person_of(request)
        if person is None or not (person.is_active and person.is_staff):
            return False
        return obj is None or person.sees_everything or cast(ApiToken, obj).user_id == person.pk

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Every person of the admin, for oneself."""
        return self.has_view_permission(request)

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """A token is revoked, never changed."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """A token is revoked, never deleted: the audit trail refers to it."""
        return False

    def has_revoke_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """One's own; superusers may end everybody's."""
        if object_id is None:
            return self.has_view_permission(request)
        token = cast("ApiToken | None", self.get_object(request, object_id))
        return token is not None and token.revoked_at is None and _may_end(request, token)

    def get_fieldsets(self, request: HttpRequest, obj: Model | None = None) -> Any:
        """The form when adding, else what there is to see."""
        if obj is None:
            return ((None, {"fields": ("name", "project", "scopes", "expires_at")}),)
        shown = ("name", "prefix", "user", "project", "scopes", "created_at", "expires_at")
        return ((None, {"fields": (*shown, "last_used_at", "revoked_at")}),)

    def formfield_for_foreignkey(
        self, db_field: ForeignKey[Any, Any], request: HttpRequest, **kwargs: Any
    ) -> Any:
        """Only projects where the person has a role."""
        if db_field.name == "project":
            projects = cast(
                VisibleQuerySet[Model], db_field.remote_field.model._default_manager.all()
            )
            kwargs["queryset"] = projects.visible_to(request.user)
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def save_model(self, request: HttpRequest, obj: Model, form: Any, change: bool) -> None:
        """By the service, which also records it; the secret waits for ``response_add``."""
        person = cast(User, person_of(request))
        data = form.cleaned_data
        made = create_token(
            actor=person,
            user=person,
            name=data["name"],
            scopes=data["scopes"],
            project=data["project"],
            expires_at=data["expires_at"],
        )
        obj.__dict__.update(made.token.__dict__)
        request._new_secret = made.secret  # type: ignore[attr-defined]

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Nothing hangs on a token."""

    def response_add(
        self, request: HttpRequest, obj: Model, post_url_continue: str | None = None
    ) -> HttpResponse:
        """The secret, in this answer only: not in the session, not in a message cookie."""
        context = {
            **self.admin_site.each_context(request),
            "title": _("Your new API token"),
            "token": obj,
            "secret": request._new_secret,  # type: ignore[attr-defined]
            "opts": self.opts,
        }
        response = TemplateResponse(request, "admin/access/apitoken/created.html", context)
        response.headers["Cache-Control"] = "no-store"
        return response

    @action(description=_("Revoke"), permissions=["revoke"], url_path="revoke")
    @confirmed(
        _("Revoke this token? Programs that use it are refused from now on."), verb=_("Revoke")
    )
    @shows_refusals
    def revoke(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """End this token for good."""
        token = self.get_queryset(request).get(pk=object_id)
        revoke_token(actor=person_of(request), token=token)
        messages.success(request, _now("The token has been revoked."))
        return HttpResponseRedirect(reverse("admin:access_apitoken_change", args=[object_id]))

    @action(description=_("Revoke selected tokens"), permissions=["revoke"])
    def revoke_selected(self, request: HttpRequest, queryset: QuerySet[ApiToken]) -> None:
        """End the selected tokens; those that ended before are left alone."""
        active = [each for each in queryset.filter(revoked_at=None) if _may_end(request, each)]
        for token in active:
            revoke_token(actor=person_of(request), token=token)
        count = len(active)
        text = ngettext("%(count)d token revoked.", "%(count)d tokens revoked.", count)
        messages.success(request, text % {"count": count})


def _may_end(request: HttpRequest, token: ApiToken) -> bool:
    person = person_of(request)
    return person is not None and (person.rules_everything or token.user_id == person.pk)
