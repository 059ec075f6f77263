"""Form fields of a job: typed texts and their stored values."""

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

from apps.jobs.arguments import parse_json
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
    """Field whose value is entered as text; an invalid text is shown again unchanged."""

    nothing: ClassVar[Any] = None

    def parse(self, text: str) -> Any:
        """Parse a text into the stored value. Raises ``ValidationError``."""
        raise NotImplementedError

    def show(self, value: Any) -> str:
        """Return the text of a value."""
        raise NotImplementedError

    def prepare_value(self, value: Any) -> str:
        """Return a stored value as text; an invalid text is returned unchanged."""
        if isinstance(value, str):
            return value
        return "" if value is None or value == self.nothing else self.show(value)

    def clean(self, value: Any) -> Any:
        """Return the parsed value. Raises ``ValidationError`` with the position of the error."""
        return self.parse(str(super().clean(value) or ""))

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Compare parsed values: changed spacing or order of names does not count as a change."""
        if isinstance(initial, str):
            # The form is shown again after a validation error.
            return initial != (data or "")
        try:
            return bool((initial or self.nothing) != self.parse(data or ""))
        except ValidationError:
            return True


class JsonTextField(TypedField):
    """JSON in a text area; errors name line and column."""

    widget = UnfoldAdminTextareaWidget

    def show(self, value: Any) -> str:
        """Return indented JSON."""
        return json.dumps(value, indent=2, ensure_ascii=False)


class CutRulesFormField(JsonTextField):
    """Field for a JSON list of cut rules; the model validates each rule."""

    nothing: ClassVar[Any] = []

    def parse(self, text: str) -> Any:
        """Parse a JSON list; an empty text is an empty list."""
        rules = parse_json(text) if text.strip() else []
        if not isinstance(rules, list):
            # The model would accept an empty object here.
            validate_cut_rules(rules)
        return rules


class RetryRulesFormField(JsonTextField):
    """Field for a JSON list of retry rules; the model validates each rule."""

    nothing: ClassVar[Any] = []

    def parse(self, text: str) -> Any:
        """Parse a JSON list; an empty text is an empty list."""
        rules = parse_json(text) if text.strip() else []
        if not isinstance(rules, list):
            raise ValidationError(
                _('Enter a JSON list of rules such as [{"on": "lost", "retries": 1}].')
            )
        return rules


class CommandFormField(TypedField):
    """Field for a command line with shell quoting."""

    nothing: ClassVar[Any] = []

    def parse(self, text: str) -> list[str]:
        """Split a command line into words."""
        return parse_command(text)

    def show(self, value: Any) -> str:
        """Join words to a command line, quoted where needed."""
        return format_command([str(word) for word in value])


class EnvironmentFormField(TypedField):
    """Field for environment variables: lines of NAME=value, or a JSON object."""

    widget = UnfoldAdminTextareaWidget
    nothing: ClassVar[Any] = {}

    def parse(self, text: str) -> dict[str, Any]:
        """Parse variables; return values by name."""
        return parse_environment(text)

    def show(self, value: Any) -> str:
        """Return one variable per line."""
        return format_environment(value)


class TagsFormField(TypedField):
    """Field for tags, separated by spaces or commas."""

    nothing: ClassVar[Any] = []

    def parse(self, text: str) -> list[str]:
        """Parse tags; duplicates are removed."""
        return parse_tags(text)

    def show(self, value: Any) -> str:
        """Join tags by spaces."""
        return " ".join(map(str, value))


class MemoryField(TypedField):
    """Field for an amount of memory, in MiB or with a unit; stored in bytes."""

    def parse(self, text: str) -> int | None:
        """Parse an amount; return bytes, None for an empty text."""
        text = text.strip()
        if not text:
            return None
        read = _SIZE.fullmatch(text)
        if read is None:
            raise ValidationError(_("Enter an amount such as 512, 512 MiB or 2 GiB."))
        return int(float(read[1]) * _UNITS[(read[2] or read[3] or "").lower()])

    def show(self, value: Any) -> str:
        """Return the amount in the largest exact unit."""
        for unit, name in ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB")):
            if value % unit == 0:
                return f"{value // unit} {name}"
        return f"{value} B"


class CookiesFormField(SecretFormField):
    """Field for cookies, as a Cookie header or as JSON; stored cookies are never shown."""

    def clean(self, value: Any) -> Any:
        """Return the cookies as JSON text; "" keeps the stored cookies."""
        typed = super().clean(value)
        if typed is CLEAR or not typed:
            return typed
        cookies = parse_cookies(typed)
        return json.dumps(cookies) if cookies else CLEAR


@dataclass(frozen=True)
class TypedSecrets:
    """Entered secrets and the names to remove; the repr does not contain values."""

    text: str
    removed: frozenset[str]

    def __repr__(self) -> str:
        return "TypedSecrets()"


class SecretsInput(UnfoldAdminTextareaWidget):
    """Input for new secrets, with a check box to remove each stored secret; shows no values."""

    def __init__(self, attrs: dict[str, Any] | None = None) -> None:
        super().__init__({"autocomplete": "off", "spellcheck": "false", **(attrs or {})})
        self.names: list[str] = []

    def render(
        self, name: str, value: Any, attrs: dict[str, Any] | None = None, renderer: Any = None
    ) -> SafeString:
        """Render an empty text area followed by the stored names."""
        area = super().render(name, "", attrs, renderer)
        if not self.names:
            return SafeString(area)
        boxes = format_html_join(
            "",
            '<label class="cy-stored-one"><input type="checkbox" name="{}-remove" value="{}"> '
            "<code>{}</code></label>",
            ((name, secret, secret) for secret in self.names),
        )
        return format_html(
            '{}<div class="cy-stored"><span>{}</span> {}</div>',
            area,
            _("Stored secrets, tick to remove:"),
            boxes,
        )

    def value_from_datadict(self, data: Any, files: Any, name: str) -> TypedSecrets:
        removed = data.getlist(f"{name}-remove") if hasattr(data, "getlist") else ()
        return TypedSecrets(text=data.get(name) or "", removed=frozenset(removed))

    def value_omitted_from_data(self, data: Any, files: Any, name: str) -> bool:
        return name not in data and f"{name}-remove" not in data


class SecretsFormField(forms.Field):
    """Field for changes of secrets: new values by name, None for a secret to remove."""

    widget = SecretsInput

    def clean(self, value: Any) -> dict[str, str | None]:
        """Return the changes; error messages name the variable, never its value."""
        typed = value if isinstance(value, TypedSecrets) else TypedSecrets("", frozenset())
        given = parse_secrets(typed.text)
        validate_environment(given)
        return {**dict.fromkeys(sorted(typed.removed)), **given}

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Return whether a secret was entered or selected for removal."""
        return isinstance(data, TypedSecrets) and bool(data.text.strip() or data.removed)


class TimeZoneInput(UnfoldAdminTextInputWidget):
    """Text input that suggests the known time zones."""

    def render(
        self, name: str, value: Any, attrs: dict[str, Any] | None = None, renderer: Any = None
    ) -> SafeString:
        """Render the input with its list of suggestions."""
        zones = f"{name}-zones"
        box = super().render(name, value, {**(attrs or {}), "list": zones}, renderer)
        options = format_html_join(
            "", '<option value="{}">', ((name,) for name in sorted(available_timezones()))
        )
        return format_html('{}<datalist id="{}">{}</datalist>', box, zones, options)


def secrets_after(stored: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """Return the stored secrets with the changes applied."""
    merged = {**stored, **changes}
    return {name: text for name, text in merged.items() if text is not None}
