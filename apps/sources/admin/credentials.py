"""Admin of credentials: secrets can be set, but are never shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display

from apps.access.admin import ProjectScopedAdmin
from apps.access.admin.base import person_of, projects_of
from apps.access.states import Role
from apps.runtime.fields import CLEAR
from apps.sources.models import Credential
from apps.sources.services import delete_credential, save_credential
from apps.sources.services.credentials import SECRETS

if TYPE_CHECKING:
    _ModelForm = forms.ModelForm[Credential]
else:
    _ModelForm = forms.ModelForm


class CredentialForm(_ModelForm):
    """A secret field that is left empty keeps the stored secret."""

    class Meta:
        model = Credential
        fields = ("project", "name", *SECRETS)

    def given(self) -> dict[str, str]:
        """Return the secrets that were entered, "" for those that were cleared."""
        typed = {name: self.cleaned_data.get(name) for name in SECRETS}
        return {
            name: "" if value is CLEAR else str(value) for name, value in typed.items() if value
        }


@admin.register(Credential)
class CredentialAdmin(ProjectScopedAdmin):
    """Admin of credentials; only editors write them, and sources refer to them by name."""

    form = CredentialForm
    list_display = ("name", "project", "stored_secrets", "updated_at")
    list_select_related = ("project",)
    search_fields = ("name",)
    fieldsets = (
        (None, {"fields": (("project", "name"),)}),
        (
            _("Secrets"),
            {
                "fields": (("username", "password"), "token", "headers"),
                "description": _(
                    "Credentials for the record API. Secrets are not shown after saving. Leave a "
                    "field empty to keep the stored value."
                ),
            },
        ),
    )

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """The name is read-only after creation: sources refer to it."""
        return () if obj is None else ("project", "name")

    @display(description=_("stored secrets"))
    def stored_secrets(self, obj: Credential) -> str:
        """List the secrets that are set."""
        fields = {field.name: field for field in Credential._meta.concrete_fields}
        names = [str(fields[secret].verbose_name) for secret in SECRETS if getattr(obj, secret)]
        return ", ".join(names) or "–"

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Save by the service, which also writes the audit record."""
        if obj.project_id not in projects_of(request, Role.EDITOR):
            raise PermissionDenied
        saved = save_credential(
            project_id=obj.project_id,
            name=obj.name,
            values=form.given(),
            actor=person_of(request),
            new=not change,
        )
        obj.__dict__.update(saved.__dict__)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Do nothing: credentials have no related objects."""

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """Delete by the service, which refuses while a source uses the credentials."""
        delete_credential(credential=obj, actor=person_of(request))
