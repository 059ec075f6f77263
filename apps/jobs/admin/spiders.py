"""Form fields that offer the spiders of an image and draw their arguments."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from django.core.exceptions import ValidationError
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from unfold.widgets import INPUT_CLASSES, SELECT_CLASSES, UnfoldAdminTextareaWidget

from apps.jobs.admin.fields import JsonTextField
from apps.jobs.arguments import check_arguments, parse_arguments, parse_json
from apps.projects.models import ImageDescription

Argument = Mapping[str, Any]
_INVALID: Final = {
    "int": _("%(name)s: enter a whole number."),
    "float": _("%(name)s: enter a number."),
    "list": _("%(name)s: enter a JSON list, or texts separated by commas."),
    "dict": _("%(name)s: enter a JSON object."),
}
_FITTING: Final[dict[str, tuple[type, ...]]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "list": (list,),
    "dict": (dict,),
}


def spider_choices(described: ImageDescription, current: str) -> list[tuple[str, str]]:
    """Return the choices of a job's spider; one that the image lacks stays visible."""
    choices = [("", gettext("none: the image's own command"))]
    if current and current not in described.names:
        choices.append((current, gettext("%(name)s (not in the image)") % {"name": current}))
    return [*choices, *((name, name) for name in described.names)]


@dataclass(frozen=True)
class TypedArguments:
    """Entered arguments: JSON of the text area, and texts of the drawn fields by name."""

    text: str
    drawn: dict[str, str] = field(default_factory=dict)


class ArgumentsInput(UnfoldAdminTextareaWidget):
    """A field for each declared argument of the spider, and a text area for others."""

    def __init__(self, attrs: dict[str, Any] | None = None) -> None:
        super().__init__(attrs)
        self.arguments: Sequence[Argument] = ()

    def render(
        self, name: str, value: Any, attrs: dict[str, Any] | None = None, renderer: Any = None
    ) -> SafeString:
        """Render the drawn fields, which a script replaces for another spider, and the area."""
        typed = value if isinstance(value, TypedArguments) else self._split(value or "")
        area = super().render(name, typed.text, attrs, renderer)
        drawn = drawn_fields(name, self.arguments, typed.drawn)
        return format_html(
            '<div class="cy-arguments" data-arguments>{}</div>'
            '<p class="cy-subtle cy-arguments-more" data-arguments-more{}>{}</p>{}',
            drawn,
            "" if drawn else SafeString(" hidden"),
            _("Further arguments, as a JSON object:"),
            area,
        )

    def value_from_datadict(self, data: Any, files: Any, name: str) -> TypedArguments:
        prefix = f"{name}."
        drawn = {key[len(prefix) :]: data[key] for key in data if key.startswith(prefix)}
        return TypedArguments(text=data.get(name) or "", drawn=drawn)

    def value_omitted_from_data(self, data: Any, files: Any, name: str) -> bool:
        return name not in data

    def _split(self, text: str) -> TypedArguments:
        """Move the values of declared arguments from the JSON text into their fields."""
        try:
            values = parse_arguments(text)
        except ValidationError:
            return TypedArguments(text)
        drawn: dict[str, str] = {}
        for argument in self.arguments:
            name = argument["name"]
            if name in values and _fits(argument["type"], values[name]):
                drawn[name] = _shown(values.pop(name))
        rest = json.dumps(values, indent=2, ensure_ascii=False) if values else ""
        return TypedArguments(rest, drawn)


class ArgumentsFormField(JsonTextField):
    """Field for spider arguments: an object."""

    widget = ArgumentsInput
    nothing: ClassVar[Any] = {}

    @property
    def declared(self) -> Sequence[Argument]:
        """Arguments that the spider declares."""
        widget: Any = self.widget
        arguments: Sequence[Argument] = widget.arguments
        return arguments

    def prepare_value(self, value: Any) -> Any:
        """Return a stored value as text; entered values are shown again unchanged."""
        return value if isinstance(value, TypedArguments) else super().prepare_value(value)

    def clean(self, value: Any) -> dict[str, Any]:
        """Return the arguments; an empty field is an argument that is not given."""
        typed = value if isinstance(value, TypedArguments) else TypedArguments(str(value or ""))
        arguments = parse_arguments(typed.text)
        errors: list[ValidationError] = []
        for argument in self.declared:
            text = typed.drawn.get(argument["name"], "").strip()
            if text:
                try:
                    arguments[argument["name"]] = _converted(argument, text)
                except ValidationError as error:
                    errors.append(error)
        if errors:
            raise ValidationError(errors)
        return check_arguments(arguments)

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Compare parsed values."""
        try:
            return bool((initial or {}) != self.clean(data))
        except ValidationError:
            return True


def drawn_fields(
    field_name: str, arguments: Iterable[Argument], values: Mapping[str, str]
) -> SafeString:
    """Return the fields of declared arguments as HTML."""
    return format_html_join(
        "",
        '<div class="cy-argument"><label for="id_{0}">{1}{2} <span class="cy-subtle">{3}</span>'
        '</label>{4}<span class="cy-subtle">{5}</span></div>',
        (
            (
                f"{field_name}.{argument['name']}",
                argument["name"],
                SafeString('<span class="text-red-600" aria-hidden="true"> *</span>')
                if argument["required"]
                else "",
                argument["type"],
                _input(
                    f"{field_name}.{argument['name']}", argument, values.get(argument["name"], "")
                ),
                _help(argument),
            )
            for argument in arguments
        ),
    )


def _help(argument: Argument) -> str:
    parts = [str(argument["description"])] if argument["description"] else []
    if argument["required"]:
        parts.append(gettext("Required by the spider."))
    return " ".join(parts)


def _input(name: str, argument: Argument, text: str) -> SafeString:
    default = argument["default"]
    if argument["type"] == "bool":
        labels = {"true": gettext("yes"), "false": gettext("no")}
        usual = labels.get(_shown(default), "–")
        options = [("", gettext("default: %(value)s") % {"value": usual}), *labels.items()]
        chosen = format_html_join(
            "",
            '<option value="{}"{}>{}</option>',
            (
                (value, SafeString(" selected") if value == text.lower() else "", label)
                for value, label in options
            ),
        )
        return format_html(
            '<select id="id_{0}" name="{0}" class="{1}">{2}</select>',
            name,
            " ".join(SELECT_CLASSES),
            chosen,
        )
    kind = {"int": "1", "float": "any"}.get(argument["type"])
    return format_html(
        '<input id="id_{0}" name="{0}" type="{1}"{2} value="{3}" placeholder="{4}" class="{5}" '
        'autocomplete="off" spellcheck="false">',
        name,
        "number" if kind else "text",
        format_html(' step="{}"', kind) if kind else "",
        text,
        "" if default is None else _shown(default),
        " ".join(INPUT_CLASSES),
    )


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _fits(kind: str, value: Any) -> bool:
    if kind in ("int", "float") and isinstance(value, bool):
        return False
    return isinstance(value, _FITTING.get(kind, (object,)))


def _converted(argument: Argument, text: str) -> Any:
    """Return a typed text as the argument's type. Raises ``ValidationError``."""
    kind = argument["type"]
    if kind == "str":
        return text
    if kind == "list" and not text.startswith("["):
        return [part.strip() for part in text.split(",")]
    try:
        value = parse_json(text.lower() if kind == "bool" else text)
    except ValidationError:
        if kind == "any":
            return text
        value = None
    if not _fits(kind, value):
        message = _INVALID.get(kind, _("%(name)s: choose yes or no."))
        raise ValidationError(message, params={"name": argument["name"]})
    return value
