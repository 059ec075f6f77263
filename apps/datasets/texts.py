"""Translated texts of the errors and findings of the plain-Python part."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from django.utils.functional import Promise
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from apps.datasets.engine.accounting import OTHER_REASONS
from apps.datasets.engine.checks import BadChecks
from apps.datasets.engine.errors import DatasetError

CHECKS: Final[Mapping[str, Promise]] = {
    "schema": _("Schema"),
    "pattern": _("Pattern"),
    "items_at_least": _("Number of items"),
    "fill_rate": _("Fill rate"),
    "range": _("Range"),
    "rejected_at_most": _("Rejected items"),
    "flagged_at_most": _("Flagged items"),
    "duplicates_at_most": _("Duplicates"),
    "change": _("Change"),
    "checks": _("Checks"),
}
# Keywords of JSON Schema, as reasons name them.
_KEYWORDS: Final[Mapping[str, Promise]] = {
    "type": _("wrong type"),
    "required": _("a required field is missing"),
    "minimum": _("too small"),
    "exclusiveMinimum": _("too small"),
    "maximum": _("too large"),
    "exclusiveMaximum": _("too large"),
    "multipleOf": _("not a multiple"),
    "minLength": _("too short"),
    "maxLength": _("too long"),
    "minItems": _("too few elements"),
    "maxItems": _("too many elements"),
    "uniqueItems": _("elements are repeated"),
    "pattern": _("does not match the pattern"),
    "format": _("wrong format"),
    "enum": _("not an allowed value"),
    "const": _("not an allowed value"),
    "additionalProperties": _("a field that is not allowed"),
    "does not match the pattern": _("does not match the pattern"),
}
# Why pages are not kept, as agents report it (``apps.agents.downloader.kept.spool.Reason``).
_NOT_KEPT: Final[Mapping[str, Promise]] = {
    "no space on the agent": _("no space on the agent"),
    "the agent's disk": _("the agent's disk failed"),
    "too large": _("larger than 32 MiB"),
    "the agent could not write fast enough": _("the agent could not write fast enough"),
    "refused by the object store": _("refused by the object store"),
    "not uploaded in time": _("not uploaded within 7 days"),
    "not uploaded by the agent": _("not uploaded by the agent"),
}
_REQUIRED: Final = re.compile(r'"(?P<field>.*)" is a required property')


def text_of(error: DatasetError) -> str:
    """Return the text of an error in the active language."""
    text = gettext(error.text)
    text = text % error.params if error.params else text
    if isinstance(error, BadChecks) and error.number:
        return gettext("Check %(number)d: %(text)s") % {"number": error.number, "text": text}
    return text


def shown_checks(checked: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the outcomes of a run's checks in the active language: check, ok, text."""
    return [{"check": row["check"], "ok": row["ok"], "text": _finding(row)} for row in checked]


def check_title(name: str) -> str:
    """Return the name of a kind of check."""
    return str(CHECKS.get(name, name))


def reason_text(reason: str) -> str:
    """Return a reason of a rejection or flag, such as ``price: type``, in the active language."""
    if reason == OTHER_REASONS:
        return gettext("other reasons")
    if reason in _NOT_KEPT:
        return str(_NOT_KEPT[reason])
    required = _REQUIRED.fullmatch(reason)
    if required is not None:
        return gettext("%(field)s: is missing") % {"field": required["field"]}
    place, colon, keyword = reason.rpartition(": ")
    return f"{place}{colon}{_KEYWORDS.get(keyword, keyword)}"


def _finding(row: Mapping[str, Any]) -> str:
    template = row.get("template", "")
    return gettext(template) % row["params"] if template else str(row["text"])
