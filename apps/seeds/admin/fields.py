"""Form fields and widgets of the frontier forms."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import entry_points
from typing import Any
from zoneinfo import available_timezones

from django import forms
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _
from unfold.widgets import UnfoldAdminTextareaWidget, UnfoldAdminTextInputWidget

from apps.seeds.engine import keys, segments
from apps.seeds.engine.keys import IGNORED_PARAMETERS
from apps.seeds.models.frontier import validate_parameters

# This entry alone stands for an empty list: no parameter is ignored.
NONE_AT_ALL = "-"


def segment_names() -> list[str]:
    """Return the suggested values of ``segments``; any number fits in place of the 3 of
    ``days:3``.
    """
    return ["hour", "day", "days:3", "week", "month", "none", *_plug_ins(segments.GROUP)]


def key_names() -> list[str]:
    """Return the suggested values of ``keys``."""
    return ["whole", "page", "canonical", *_plug_ins(keys.GROUP)]


def _plug_ins(group: str) -> list[str]:
    return sorted(entry_points(group=group).names)


class SuggestionInput(UnfoldAdminTextInputWidget):
    """Text input with a list of suggestions (``<datalist>``); other values are accepted too."""

    def __init__(self, suggestions: Any, attrs: dict[str, Any] | None = None) -> None:
        super().__init__(attrs)
        # Callable, because installed packages and time zones are looked up when the form is
        # rendered.
        self._suggestions = suggestions

    def render(
        self, name: str, value: Any, attrs: dict[str, Any] | None = None, renderer: Any = None
    ) -> SafeString:
        """Render the input followed by its ``<datalist>``."""
        known = f"{(attrs or {}).get('id', name)}-known"
        box = super().render(name, value, {**(attrs or {}), "list": known}, renderer)
        suggested: Iterable[str] = self._suggestions()
        options = format_html_join(
            "", '<option value="{}">', ((suggestion,) for suggestion in suggested)
        )
        return format_html('{}<datalist id="{}">{}</datalist>', box, known, options)


def zone_input() -> SuggestionInput:
    """Input for a time zone, with the IANA names as suggestions."""
    return SuggestionInput(lambda: sorted(available_timezones()))


def segments_input() -> SuggestionInput:
    """Input for the granularity, with the segment resolvers as suggestions."""
    return SuggestionInput(segment_names)


def keys_input() -> SuggestionInput:
    """Input for the key resolver."""
    return SuggestionInput(key_names)


class ParametersField(forms.CharField):
    """Names of URL parameters, separated by lines or commas; None stands for the default list."""

    def __init__(self, **options: Any) -> None:
        usual = ", ".join(IGNORED_PARAMETERS)
        given = {
            "label": _("Ignored parameters"),
            "required": False,
            "widget": UnfoldAdminTextareaWidget(
                {"rows": 3, "spellcheck": "false", "placeholder": usual}
            ),
            "help_text": _(
                "For canonical keys: names of URL parameters, one per line. Leave empty for the "
                "JSONP defaults shown; enter - to ignore none."
            ),
        }
        super().__init__(**(given | options))

    def prepare_value(self, value: Any) -> Any:
        """Return a stored list as text, and rejected text unchanged."""
        if isinstance(value, list):
            return "\n".join(str(name) for name in value) if value else NONE_AT_ALL
        return value

    def clean(self, value: Any) -> list[str] | None:
        """Return the list of names. Raises ``ValidationError``."""
        names = parameters_of(str(super().clean(value) or ""))
        validate_parameters(names)
        return names

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Return whether the names differ; whitespace is ignored."""
        return bool(initial != parameters_of(str(data or "")))


def parameters_of(text: str) -> list[str] | None:
    """Return the distinct names in ``text``; None if it is empty."""
    names = [name.strip() for name in text.replace(",", "\n").splitlines()]
    distinct = list(dict.fromkeys(name for name in names if name))
    if not distinct:
        return None
    return [] if distinct == [NONE_AT_ALL] else distinct
