"""The form of a job."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from django import forms
from django.utils.translation import gettext_lazy as _
from unfold.widgets import UnfoldAdminTextareaWidget

from apps.jobs.arguments import parse_arguments
from apps.jobs.models import Job


class ArgumentsField(forms.CharField):
    """A JSON object in a text area; an error names line and column, and the text stays."""

    widget = UnfoldAdminTextareaWidget

    def prepare_value(self, value: Any) -> str:
        """A stored object indented, a refused text as it was typed."""
        if isinstance(value, str):
            return value
        return json.dumps(value, indent=2, ensure_ascii=False) if value else ""

    def clean(self, value: Any) -> dict[str, Any]:
        """The object; raises ``ValidationError`` with the position."""
        return parse_arguments(str(super().clean(value) or ""))

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Another order of the same names, or other spaces, is no change."""
        try:
            return bool((initial or {}) != parse_arguments(data or ""))
        except forms.ValidationError:
            return True


class JobForm(forms.ModelForm):  # type: ignore[type-arg]
    """A job, checked as a whole."""

    arguments = ArgumentsField(
        label=_("Arguments"),
        required=False,
        help_text=_(
            'A JSON object the spider receives, such as {"start": "https://example.org/"}.'
        ),
    )

    class Meta:
        model = Job
        fields: ClassVar = [
            "project",
            "name",
            "spider",
            "arguments",
            "speed",
            "concurrency",
            "policy",
            "enabled",
            "notes",
        ]
