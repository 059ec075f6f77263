"""Admin of API tokens: the secret is shown once, in the response to the form."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from django import forms
from django.contrib import admin, messages
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _
from unfold.decorators import action, display
from unfold.widgets import (
    UnfoldAdminCheckboxSelectMultipleWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
)

from apps.access.admin.base import AuditedAdmin, person_of, shows_refusals
from apps.access.admin.confirm import asks_first, confirmed
from apps.access.errors import DomainError
from apps.access.models import ApiToken, User
from apps.access.querysets import VisibleQuerySet
from apps.access.services import (
    checked_networks,
    create_token,
    known_areas,
    revoke_token,
    rotate_token,
)
from apps.access.states import Access

if TYPE_CHECKING:
    from django.db.models import ForeignKey

    _ModelForm = forms.ModelForm[ApiToken]
else:
    _ModelForm = forms.ModelForm


def scope_choices() -> list[tuple[str, str]]:
    """Return all scopes with labels, those for all areas first."""
    choices = []
    for area in known_areas():
        name = gettext("everything") if area == "*" else area
        choices += [(f"{area}:{access}", f"{access.label}: {name}") for access in Access]
    return choices


LIFETIMES: Final = {
    "7": _("7 days"),
    "30": _("30 days"),
    "90": _("90 days"),
    "365": _("a year"),
    "": _("until the date below; empty: never"),
}
OVERLAPS: Final = {
    "0": _("becomes invalid immediately"),
    "3600": _("stays valid for one hour"),
    "86400": _("stays valid for one day"),
    "604800": _("stays valid for one week"),
}


class TokenForm(_ModelForm):
    """Form with scopes as check boxes, one network a line, and usual lifetimes."""

    lifetime = forms.ChoiceField(
        label=_("Expires after"),
        choices=list(LIFETIMES.items()),
        required=False,
        initial="90",
        widget=UnfoldAdminSelectWidget,
    )
    allowed_networks = forms.CharField(
        label=_("Allowed networks"),
        required=False,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 3}),
        help_text=_(
            "Networks, one per line, such as 10.20.0.0/16."
            " The token is accepted only from these networks."
        ),
    )

    scopes = forms.MultipleChoiceField(
        label=_("Scopes"),
        choices=scope_choices,
        initial=["*:read"],
        widget=UnfoldAdminCheckboxSelectMultipleWidget,
        help_text=_("What programs with this token may do; write includes read."),
    )

    class Meta:
        model = ApiToken
        fields = ("name", "project", "scopes", "allowed_networks", "expires_at")

    def clean_allowed_networks(self) -> list[str]:
        """Return the networks; the error names the invalid ones."""
        try:
            return checked_networks(self.cleaned_data["allowed_networks"].replace(",", " ").split())
        except DomainError as error:
            raise forms.ValidationError(error.fields["allowed_networks"]) from error

    def clean(self) -> dict[str, Any]:
        """Set the expiry: the time that was entered, else the chosen lifetime."""
        data: dict[str, Any] = super().clean() or self.cleaned_data
        if data.get("lifetime") and data.get("expires_at") is None:
            data["expires_at"] = timezone.now() + timedelta(days=int(data["lifetime"]))
        return data

    def clean_expires_at(self) -> Any:
        """Require a time in the future."""
        expires_at = self.cleaned_data["expires_at"]
        if expires_at is not None and expires_at <= timezone.now():
            raise forms.ValidationError(_("This time is in the past."))
        return expires_at


class RotateForm(forms.Form):
    """Form that asks how long the old secret stays valid."""

    overlap = forms.ChoiceField(
        label=_("The old secret"), choices=list(OVERLAPS.items()), widget=UnfoldAdminSelectWidget
    )


@admin.register(ApiToken)
class ApiTokenAdmin(AuditedAdmin):
    """A user's own tokens; superusers see and revoke all tokens."""

    form = TokenForm
    list_display = (
        "name",
        "prefix",
        "user",
        "project",
        "state",
        "expires_at",
        "last_used_at",
        "last_used_from",
    )
    list_select_related = ("user", "project")
    search_fields = ("name", "prefix", "user__username")
    actions = ("revoke_selected",)
    actions_detail: ClassVar[list[str]] = ["rotate", "revoke"]
    show_full_result_count = False

    @display(
        description=_("state"),
        label={"active": "success", "expired": "warning", "revoked": "danger"},
    )
    def state(self, token: ApiToken) -> tuple[str, str]:
        """Usable, expired or revoked."""
        if token.revoked_at is not None:
            return "revoked", gettext("revoked")
        if not token.usable(timezone.now()):
            return "expired", gettext("expired")
        return "active", gettext("active")

    def get_queryset(self, request: HttpRequest) -> QuerySet[ApiToken]:
        """All tokens for superusers and auditors, else the user's own."""
        rows = cast("QuerySet[ApiToken]", super().get_queryset(request))
        person = person_of(request)
        if person is None:
            return rows.none()
        return rows if person.sees_everything else rows.filter(user=person)

    def get_list_filter(self, request: HttpRequest) -> tuple[str, ...]:
        """Filter by user only for users who see all tokens."""
        person = person_of(request)
        return ("user",) if person is not None and person.sees_everything else ()

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Every user of the admin."""
        return self.has_view_permission(request)

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """The user's own tokens; all tokens for superusers and auditors."""
        person = person_of(request)
        if person is None or not (person.is_active and person.is_staff):
            return False
        return obj is None or person.sees_everything or cast(ApiToken, obj).user_id == person.pk

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Every user of the admin, for themselves."""
        return self.has_view_permission(request)

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Return False: tokens are revoked, never changed."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Return False: tokens are revoked, since the audit trail refers to them."""
        return False

    def has_revoke_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """The user's own tokens; any token for superusers."""
        if object_id is None:
            return self.has_view_permission(request)
        token = cast("ApiToken | None", self.get_object(request, object_id))
        return token is not None and token.revoked_at is None and _may_end(request, token)

    def get_fieldsets(self, request: HttpRequest, obj: Model | None = None) -> Any:
        """Form fields when adding, else read-only fields."""
        if obj is None:
            shown_fields = (
                "name",
                "project",
                "scopes",
                "allowed_networks",
                "lifetime",
                "expires_at",
            )
            return ((None, {"fields": shown_fields}),)
        shown = ("name", "prefix", "user", "project", "scopes", "allowed_networks", "created_at")
        times = ("expires_at", "last_used_at", "last_used_from", "previous_until", "revoked_at")
        return ((None, {"fields": (*shown, *times)}),)

    def formfield_for_foreignkey(
        self, db_field: ForeignKey[Any, Any], request: HttpRequest, **kwargs: Any
    ) -> Any:
        """Offer only projects where the user has a role."""
        if db_field.name == "project":
            projects = cast(
                VisibleQuerySet[Model], db_field.remote_field.model._default_manager.all()
            )
            kwargs["queryset"] = projects.visible_to(request.user)
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def save_model(self, request: HttpRequest, obj: Model, form: Any, change: bool) -> None:
        """Create by the service, which writes the audit record; keep the secret for
        ``response_add``.
        """
        person = cast(User, person_of(request))
        data = form.cleaned_data
        made = create_token(
            actor=person,
            user=person,
            name=data["name"],
            scopes=data["scopes"],
            project=data["project"],
            expires_at=data["expires_at"],
            allowed_networks=data["allowed_networks"],
        )
        obj.__dict__.update(made.token.__dict__)
        request._new_secret = made.secret  # type: ignore[attr-defined]

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Do nothing: a token has no related objects."""

    def response_add(
        self, request: HttpRequest, obj: Model, post_url_continue: str | None = None
    ) -> HttpResponse:
        """Show the secret in this response only: never in the session or a message cookie."""
        secret = request._new_secret  # type: ignore[attr-defined]
        return self._shown_once(request, cast(ApiToken, obj), secret)

    def _shown_once(self, request: HttpRequest, token: ApiToken, secret: str) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "title": _("Your new API token"),
            "token": token,
            "secret": secret,
            "opts": self.opts,
        }
        response = TemplateResponse(request, "admin/access/apitoken/created.html", context)
        response.headers["Cache-Control"] = "no-store"
        return response

    def has_rotate_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """The user's own usable tokens: the new secret acts for that user."""
        person = person_of(request)
        if object_id is None or person is None:
            return False
        token = cast("ApiToken | None", self.get_object(request, object_id))
        return token is not None and token.user_id == person.pk and token.usable(timezone.now())

    @action(description=_("New secret"), permissions=["rotate"], url_path="rotate")
    @shows_refusals
    def rotate(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask how long the old secret stays valid, then show the new one."""
        token = self.get_queryset(request).get(pk=object_id)
        form = RotateForm(request.POST or None)
        if request.method == "POST" and form.is_valid():
            overlap = timedelta(seconds=int(form.cleaned_data["overlap"]))
            made = rotate_token(actor=cast(User, person_of(request)), token=token, overlap=overlap)
            return self._shown_once(request, made.token, made.secret)
        context = {
            **self.admin_site.each_context(request),
            "title": _("New secret"),
            "token": token,
            "form": form,
            "back": reverse("admin:access_apitoken_change", args=[object_id]),
            "opts": self.opts,
        }
        return TemplateResponse(request, "admin/access/apitoken/rotate.html", context)

    @action(description=_("Revoke"), permissions=["revoke"], url_path="revoke")
    @confirmed(
        _("Revoke this token? Programs that use it are refused from now on."), verb=_("Revoke")
    )
    @shows_refusals
    def revoke(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Revoke this token."""
        token = self.get_queryset(request).get(pk=object_id)
        revoke_token(actor=person_of(request), token=token)
        messages.success(request, gettext("The token has been revoked."))
        return HttpResponseRedirect(reverse("admin:access_apitoken_change", args=[object_id]))

    @action(description=_("Revoke selected tokens"), permissions=["revoke"])
    @asks_first(
        verb=_("Revoke"),
        loss=_("Programs that use them are refused from now on. This cannot be undone."),
    )
    def revoke_selected(self, request: HttpRequest, queryset: QuerySet[ApiToken]) -> None:
        """Revoke the selected tokens; skip those that have ended."""
        active = [token for token in queryset.filter(revoked_at=None) if _may_end(request, token)]
        for token in active:
            revoke_token(actor=person_of(request), token=token)
        count = len(active)
        text = ngettext("%(count)d token revoked.", "%(count)d tokens revoked.", count)
        messages.success(request, text % {"count": count})


def _may_end(request: HttpRequest, token: ApiToken) -> bool:
    person = person_of(request)
    return person is not None and (person.rules_everything or token.user_id == person.pk)
