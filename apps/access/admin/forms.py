"""Form fields and errors shared by several apps."""

from __future__ import annotations

from typing import Any, Final

from django import forms
from unfold.widgets import UnfoldAdminTextInputWidget

from apps.access.errors import DomainError

_MOMENTS: Final = [
    "%Y-%m-%dT%H:%M",
    "%Y-%m-%dT%H:%M:%S",
    "%Y-%m-%d %H:%M:%S",
    "%Y-%m-%d %H:%M",
    "%Y-%m-%d",
]


def moment_field(label: Any) -> forms.DateTimeField:
    """Optional date and time, in the format of browsers or typed by hand."""
    widget = UnfoldAdminTextInputWidget({"type": "datetime-local", "step": "1"})
    return forms.DateTimeField(label=label, required=False, widget=widget, input_formats=_MOMENTS)


def add_refusal(form: forms.BaseForm, error: DomainError) -> None:
    """Add a service's error to the form, at the fields that it names."""
    placed = {name: texts for name, texts in error.fields.items() if name in form.fields}
    for name, texts in placed.items():
        for text in texts:
            form.add_error(name, str(text))
    if not placed:
        form.add_error(None, error.text)
