"""What people type into the form of a job, and how it is shown back to them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final
from zoneinfo import available_timezones

from django import forms
from django.core.exceptions import ValidationError
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _
from unfold.widgets import UnfoldAdminTextareaWidget, UnfoldAdminTextInputWidget

from apps.jobs.arguments import parse_arguments, parse_json
from apps.jobs.models import parse_cookies
from apps.jobs.models.execution_rules import validate_environment
from apps.jobs.models.typed_texts import (
    format_command,
    format_environment,
    parse_command,
    parse_environment,
    parse_secrets,
    parse_tags,
)
from apps.jobs.models.validators import validate_cut_rules
from apps.runtime.fields import CLEAR, SecretFormField

_UNITS: Final = {"": 1024**2, "b": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
_SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,6})?)\s*(?:([kmgt])(?:i?b)?|(b))?", re.IGNORECASE)


class TypedField(forms.CharField):
    """A value that people type as a text; a refused text stays as it was typed."""

    nothing: ClassVar[Any] = None

    def parse(self, text: str) -> Any:
        """The value of a text; raises ``ValidationError``."""
        raise NotImplementedError

    def show(self, value: Any) -> str:
        """The text that is read as this value."""
        raise NotImplementedError

    def prepare_value(self, value: Any) -> str:
        """A stored value as people type it, a refused text as it was typed."""
        if isinstance(value, str):
            return value
        return "" if value is None or value == self.nothing else self.show(value)

    def clean(self, value: Any) -> Any:
        """The value; raises ``ValidationError`` with the position."""
        return self.parse(str(super().clean(value) or ""))

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Other spaces, or another order of the same names, is no change."""
        if isinstance(initial, str):
            # Shown again after a refusal.
            return initial != (data or "")
        try:
            return bool((initial or self.nothing) != self.parse(data or ""))
        except ValidationError:
            return True


class JsonTextField(TypedField):
    """JSON in a text area; an error names line and column."""

    widget = UnfoldAdminTextareaWidget

    def show(self, value: Any) -> str:
        """Indented."""
        return json.dumps(value, indent=2, ensure_ascii=False)


class ArgumentsFormField(JsonTextField):
    """A JSON object."""

    nothing: ClassVar[Any] = {}

    def parse(self, text: str) -> dict[str, Any]:
        """An empty text is an empty object."""
        return parse_arguments(text)


class CutRulesFormField(JsonTextField):
    """A JSON list of cut rules; the model checks each."""

    nothing: ClassVar[Any] = []

    def parse(self, text: str) -> Any:
        """An empty text is an empty list."""
        rules = parse_json(text) if text.strip() else []
        if not isinstance(rules, list):
            # The model would take an empty object for nothing at all.
            validate_cut_rules(rules)
        return rules


class RetryRulesFormField(JsonTextField):
    """A JSON list of retry rules; the model checks each."""

    nothing: ClassVar[Any] = []

    def parse(self, text: str) -> Any:
        """An empty text is an empty list."""
        rules = parse_json(text) if text.strip() else []
        if not isinstance(rules, list):
            raise ValidationError(
                _('A JSON list of rules is needed, such as [{"on": "lost", "retries": 1}].')
            )
        return rules


class CommandFormField(TypedField):
    """A command line, quoted as for a shell."""

    nothing: ClassVar[Any] = []

    def parse(self, text: str) -> list[str]:
        """Its words."""
        return parse_command(text)

    def show(self, value: Any) -> str:
        """Quoted where needed."""
        return format_command([str(word) for word in value])


class EnvironmentFormField(TypedField):
    """NAME=value, one a line, or JSON."""

    widget = UnfoldAdminTextareaWidget
    nothing: ClassVar[Any] = {}

    def parse(self, text: str) -> dict[str, Any]:
        """Names and texts."""
        return parse_environment(text)

    def show(self, value: Any) -> str:
        """One a line."""
        return format_environment(value)


class TagsFormField(TypedField):
    """Words parted by spaces or commas."""

    nothing: ClassVar[Any] = []

    def parse(self, text: str) -> list[str]:
        """Each once."""
        return parse_tags(text)

    def show(self, value: Any) -> str:
        """Parted by spaces."""
        return " ".join(map(str, value))


class MemoryField(TypedField):
    """An amount of memory in MiB, or with its unit; the model has bytes."""

    def parse(self, text: str) -> int | None:
        """Bytes; None for an empty text."""
        text = text.strip()
        if not text:
            return None
        read = _SIZE.fullmatch(text)
        if read is None:
            raise ValidationError(_("Write an amount such as 512, 512 MiB or 2 GiB."))
        return int(float(read[1]) * _UNITS[(read[2] or read[3] or "").lower()])

    def show(self, value: Any) -> str:
        """In the largest unit that is exact."""
        for unit, name in ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB")):
            if value % unit == 0:
                return f"{value // unit} {name}"
        return f"{value} B"


class CookiesFormField(SecretFormField):
    """Cookies as browsers show them, or as JSON; stored ones are never shown."""

    def clean(self, value: Any) -> Any:
        """The cookies as JSON text, "" to keep those that are stored."""
        typed = super().clean(value)
        if typed is CLEAR or not typed:
            return typed
        cookies = parse_cookies(typed)
        return json.dumps(cookies) if cookies else CLEAR


@dataclass(frozen=True)
class TypedSecrets:
    """What was typed for secrets, and which stored ones are to go. It prints no value."""

    text: str
    removed: frozenset[str]

    def __repr__(self) -> str:
        return "TypedSecrets()"


class SecretsInput(UnfoldAdminTextareaWidget):
    """Takes new secrets, never shows stored ones; each of those has a box that removes it."""

    def __init__(self, attrs: dict[str, Any] | None = None) -> None:
        super().__init__({"autocomplete": "off", "spellcheck": "false", **(attrs or {})})
        self.names: list[str] = []

    def render(
        self, name: str, value: Any, attrs: dict[str, Any] | None = None, renderer: Any = None
    ) -> SafeString:
        """An empty text area, whatever is stored or was typed, and the names below."""
        area = super().render(name, "", attrs, renderer)
        if not self.names:
            return SafeString(area)
        boxes = format_html_join(
            "",
            '<label class="cy-stored-one"><input type="checkbox" name="{}-remove" value="{}"> '
            "<code>{}</code></label>",
            ((name, each, each) for each in self.names),
        )
        return format_html(
            '{}<div class="cy-stored"><span>{}</span> {}</div>', area, _("Stored; remove:"), boxes
        )

    def value_from_datadict(self, data: Any, files: Any, name: str) -> TypedSecrets:
        """Both parts."""
        removed = data.getlist(f"{name}-remove") if hasattr(data, "getlist") else ()
        return TypedSecrets(text=data.get(name) or "", removed=frozenset(removed))

    def value_omitted_from_data(self, data: Any, files: Any, name: str) -> bool:
        """When neither part was sent."""
        return name not in data and f"{name}-remove" not in data


class SecretsFormField(forms.Field):
    """Changes to secrets: an object of texts, with None for those that go."""

    widget = SecretsInput

    def clean(self, value: Any) -> dict[str, str | None]:
        """The changes; an error names the variable, never its value."""
        typed = value if isinstance(value, TypedSecrets) else TypedSecrets("", frozenset())
        given = parse_secrets(typed.text)
        validate_environment(given)
        return {**dict.fromkeys(sorted(typed.removed)), **given}

    def has_changed(self, initial: Any, data: Any) -> bool:
        """When anything was typed or ticked."""
        return isinstance(data, TypedSecrets) and bool(data.text.strip() or data.removed)


class TimeZoneInput(UnfoldAdminTextInputWidget):
    """A text with the known time zones as suggestions."""

    def render(
        self, name: str, value: Any, attrs: dict[str, Any] | None = None, renderer: Any = None
    ) -> SafeString:
        """The input and its list."""
        zones = f"{name}-zones"
        box = super().render(name, value, {**(attrs or {}), "list": zones}, renderer)
        options = format_html_join(
            "", '<option value="{}">', ((each,) for each in sorted(available_timezones()))
        )
        return format_html('{}<datalist id="{}">{}</datalist>', box, zones, options)


def secrets_after(stored: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """The stored secrets with the changes laid over them."""
    merged = {**stored, **changes}
    return {name: text for name, text in merged.items() if text is not None}
