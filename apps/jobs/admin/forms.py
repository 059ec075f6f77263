"""The form of a job."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from django import forms
from django.utils.translation import gettext_lazy as _
from unfold.widgets import INPUT_CLASSES, UnfoldAdminTextareaWidget

from apps.jobs.arguments import parse_arguments, parse_json
from apps.jobs.models import OPTIONS, Job, parse_cookies
from apps.jobs.models.validators import validate_cut_rules
from apps.runtime.fields import CLEAR, SecretFormField, SecretInput


class JsonTextField(forms.CharField):
    """JSON in a text area; an error names line and column, and the text stays."""

    widget = UnfoldAdminTextareaWidget
    nothing: ClassVar[Any] = None

    def parse(self, text: str) -> Any:
        """The value of a text; raises ``ValidationError``."""
        raise NotImplementedError

    def prepare_value(self, value: Any) -> str:
        """A stored object indented, a refused text as it was typed."""
        if isinstance(value, str):
            return value
        return json.dumps(value, indent=2, ensure_ascii=False) if value else ""

    def clean(self, value: Any) -> Any:
        """The value; raises ``ValidationError`` with the position."""
        return self.parse(str(super().clean(value) or ""))

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Another order of the same names, or other spaces, is no change."""
        try:
            return bool((initial or self.nothing) != self.parse(data or ""))
        except forms.ValidationError:
            return True


class ArgumentsField(JsonTextField):
    """A JSON object."""

    nothing: ClassVar[Any] = {}

    def parse(self, text: str) -> dict[str, Any]:
        """An empty text is an empty object."""
        return parse_arguments(text)


class CutRulesField(JsonTextField):
    """A JSON list of cut rules; the model checks each."""

    nothing: ClassVar[Any] = []

    def parse(self, text: str) -> Any:
        """An empty text is an empty list."""
        rules = parse_json(text) if text.strip() else []
        if not isinstance(rules, list):
            # The model would take an empty object for nothing at all.
            validate_cut_rules(rules)
        return rules


class CookiesField(SecretFormField):
    """Cookies as browsers show them, or as JSON; stored ones are never shown."""

    def clean(self, value: Any) -> Any:
        """The cookies as JSON text, "" to keep those that are stored."""
        typed = super().clean(value)
        if typed is CLEAR or not typed:
            return typed
        cookies = parse_cookies(typed)
        return json.dumps(cookies) if cookies else CLEAR


class JobForm(forms.ModelForm):  # type: ignore[type-arg]
    """A job, checked as a whole."""

    arguments = ArgumentsField(
        label=_("Arguments"),
        required=False,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 5, "spellcheck": "false"}),
        help_text=_(
            'A JSON object the spider receives, such as {"start": "https://example.org/"}.'
        ),
    )

    cut = CutRulesField(
        label=_("Cut rules"),
        required=False,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 6, "spellcheck": "false"}),
        help_text=_(
            # The theme shows help texts as HTML.
            "A JSON list; each rule cuts a part out of the text on the agent, one after another, "
            'such as [{"start": "&lt;main", "end": "&lt;/main&gt;"}, {"pattern": "id=([0-9]+)"}]. '
            "Keys: start, end, pattern (RE2; its first group), start_offset, end_offset, trim."
        ),
    )
    cookies = CookiesField(
        label=_("Cookies"),
        required=False,
        widget=SecretInput(attrs={"class": " ".join(INPUT_CLASSES)}),
        help_text=_('Sent from the start: "name=value; name=value" or a JSON object. Sealed.'),
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
            *OPTIONS,
            "enabled",
            "notes",
        ]
        widgets: ClassVar = {"notes": UnfoldAdminTextareaWidget(attrs={"rows": 3})}
