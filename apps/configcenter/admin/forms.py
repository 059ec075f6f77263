"""Forms that create a version of a configuration."""

from __future__ import annotations

from typing import Any, cast

from django import forms
from django.apps import apps
from django.http import HttpRequest
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from unfold.widgets import (
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanWidget,
)

from apps.access.admin.base import projects_of
from apps.access.querysets import VisibleQuerySet
from apps.access.states import Role
from apps.configcenter.engine.plain import MAX_BYTES
from apps.configcenter.errors import PlatformNotSupported
from apps.configcenter.models import MAX_NOTE
from apps.configcenter.services import all_kinds


def editable_projects(request: HttpRequest) -> Any:
    """Projects in which the user may save configurations."""
    rows = apps.get_model("projects", "Project")._default_manager.all()
    return cast("VisibleQuerySet[Any]", rows).visible_to(request.user, Role.EDITOR)


class ChoiceForm(forms.Form):
    """Choice of kind and project."""

    kind = forms.ChoiceField(label=_("Kind"), widget=UnfoldAdminSelectWidget)
    project: forms.ModelChoiceField[Any] = forms.ModelChoiceField(
        label=_("Project"),
        queryset=None,
        required=False,
        empty_label=None,
        widget=UnfoldAdminSelectWidget,
    )

    def __init__(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        kinds = [(kind.name, kind.title) for kind in all_kinds()]
        cast("forms.ChoiceField", self.fields["kind"]).choices = kinds
        project = cast("forms.ModelChoiceField[Any]", self.fields["project"])
        project.queryset = editable_projects(request)
        self._may_platform = None in projects_of(request, Role.EDITOR)
        if self._may_platform:
            project.empty_label = gettext("Platform")

    def clean(self) -> dict[str, Any]:
        """Without a project, require a kind that the platform has and a user who may edit it."""
        values = super().clean() or {}
        kind = next((kind for kind in all_kinds() if kind.name == values.get("kind")), None)
        if kind is None or "project" not in values or values["project"] is not None:
            return values
        if not self._may_platform:
            self.add_error("project", _("Choose a project."))
        elif not kind.platform:
            self.add_error("project", PlatformNotSupported.detail)
        return values


class VersionForm(forms.Form):
    """Data and note of a new version."""

    text = forms.CharField(
        label=_("Content"),
        max_length=MAX_BYTES,
        strip=False,
        widget=UnfoldAdminTextareaWidget({"rows": 28, "class": "cy-editor", "spellcheck": "false"}),
    )
    note = forms.CharField(
        label=_("Note"),
        max_length=MAX_NOTE,
        required=False,
        widget=UnfoldAdminTextInputWidget,
        help_text=_("Reason for the change, stored with the version."),
    )
    activate = forms.BooleanField(
        label=_("Activate immediately"), required=False, widget=UnfoldBooleanWidget
    )
    based_on = forms.IntegerField(min_value=0, max_value=2**31 - 1, widget=forms.HiddenInput)
