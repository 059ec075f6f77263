"""Inputs of frontier forms."""

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

# A single one of these says that nothing is left out.
NONE_AT_ALL = "-"


def segment_names() -> list[str]:
    """Return the values of ``segments``; ``days:3`` is an example of any number."""
    return ["hour", "day", "days:3", "week", "month", "none", *_plug_ins(segments.GROUP)]


def key_names() -> list[str]:
    """Return the values of ``keys``."""
    return ["whole", "page", "canonical", *_plug_ins(keys.GROUP)]


def _plug_ins(group: str) -> list[str]:
    return sorted(entry_points(group=group).names)


class SuggestingInput(UnfoldAdminTextInputWidget):
    """A text box that offers what is usual and takes anything."""

    def __init__(self, suggestions: Any, attrs: dict[str, Any] | None = None) -> None:
        super().__init__(attrs)
        # Called when it is shown: packages and zones are looked up then.
        self._suggestions = suggestions

    def render(
        self, name: str, value: Any, attrs: dict[str, Any] | None = None, renderer: Any = None
    ) -> SafeString:
        """The box and its list."""
        known = f"{(attrs or {}).get('id', name)}-known"
        box = super().render(name, value, {**(attrs or {}), "list": known}, renderer)
        suggested: Iterable[str] = self._suggestions()
        options = format_html_join("", '<option value="{}">', ((each,) for each in suggested))
        return format_html('{}<datalist id="{}">{}</datalist>', box, known, options)


def zone_input() -> SuggestingInput:
    """For a time zone."""
    return SuggestingInput(lambda: sorted(available_timezones()))


def segments_input() -> SuggestingInput:
    """For a granularity."""
    return SuggestingInput(segment_names)


def keys_input() -> SuggestingInput:
    """Input for the key resolver."""
    return SuggestingInput(key_names)


class ParametersField(forms.CharField):
    """Names of URL parameters, one a line or apart by commas; None: the usual ones."""

    def __init__(self, **options: Any) -> None:
        usual = ", ".join(IGNORED_PARAMETERS)
        given = {
            "label": _("Ignored parameters"),
            "required": False,
            "widget": UnfoldAdminTextareaWidget(
                {"rows": 3, "spellcheck": "false", "placeholder": usual}
            ),
            "help_text": _(
                "Only of canonical keys: names of URL parameters, one a line. Empty: the usual "
                "ones of JSONP, as shown; a single - is none at all."
            ),
        }
        super().__init__(**(given | options))

    def prepare_value(self, value: Any) -> Any:
        """A stored list as it is typed, a refused text as it was typed."""
        if isinstance(value, list):
            return "\n".join(str(each) for each in value) if value else NONE_AT_ALL
        return value

    def clean(self, value: Any) -> list[str] | None:
        """The list; raises ``ValidationError``."""
        names = parameters_of(str(super().clean(value) or ""))
        validate_parameters(names)
        return names

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Other spaces are no change."""
        return bool(initial != parameters_of(str(data or "")))


def parameters_of(text: str) -> list[str] | None:
    """The names in a text, each once."""
    names = [each.strip() for each in text.replace(",", "\n").splitlines()]
    found = list(dict.fromkeys(each for each in names if each))
    if not found:
        return None
    return [] if found == [NONE_AT_ALL] else found
