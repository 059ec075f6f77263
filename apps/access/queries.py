"""Audit records in readable form: changed fields and line diffs."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from django.apps import apps
from django.core.exceptions import FieldDoesNotExist
from django.db.models import DateTimeField, Field, Model
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.formats import date_format
from django.utils.translation import gettext as _

from apps.access.models import AuditRecord

Change = Literal["added", "removed", "changed", "same"]
# Query parameters of the history of one object.
KIND: Final = "object_type"
OBJECT: Final = "object_id"
NOTHING: Final = "–"
# Longer or multi-line values are shown as a line diff.
LONG_TEXT: Final = 160
# Limits of a diff on a page: lines shown, and depth of nested mappings.
SHOWN_LINES: Final = 400
DEPTH: Final = 3


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line of a diff; ``sign`` is ``+``, ``-``, `` `` or ``@`` (skipped lines)."""

    sign: str
    text: str


@dataclass(frozen=True, slots=True)
class ChangedField:
    """A changed field: values as JSON and as text, and a line diff of long texts."""

    name: str
    label: str
    change: Change
    before: Any
    after: Any
    before_text: str
    after_text: str
    lines: list[DiffLine] = field(default_factory=list)


def changed_fields(entry: AuditRecord) -> list[ChangedField]:
    """Return every field of the record, in stored order."""
    model = model_of(entry.object_type)
    before, after = dict(_flat(entry.before or {})), dict(_flat(entry.after or {}))
    names = list(dict.fromkeys([*before, *after]))
    return [_changed(model, name, before, after) for name in names]


def short_changes(entry: AuditRecord, most: int = 3) -> list[str]:
    """Return ``speed: 10 → 25`` for the first fields; of long texts only the name."""
    shown = []
    for change in changed_fields(entry)[:most]:
        if change.lines or len(change.before_text) + len(change.after_text) > LONG_TEXT:
            shown.append(change.label)
        elif entry.before is None:
            shown.append(f"{change.label}: {change.after_text}")
        else:
            shown.append(f"{change.label}: {change.before_text} → {change.after_text}")
    left = len({*dict(_flat(entry.before or {})), *dict(_flat(entry.after or {}))}) - most
    return [*shown, _("%(count)d more") % {"count": left}] if left > 0 else shown


def model_of(object_type: str) -> type[Model] | None:
    """Return the model of ``"jobs.job"``; None if it no longer exists."""
    try:
        return apps.get_model(object_type)
    except (LookupError, ValueError):
        return None


def kind_label(object_type: str) -> str:
    """Return the translated model name, ``job`` for ``"jobs.job"``."""
    model = model_of(object_type)
    return str(model._meta.verbose_name) if model is not None else object_type


def kinds() -> list[tuple[str, str]]:
    """Return ``("jobs.job", "job")`` for every type in the trail, sorted by label."""
    own = [model for model in apps.get_models() if model.__module__.startswith("apps.")]
    return sorted(
        ((model._meta.label_lower, str(model._meta.verbose_name)) for model in own),
        key=lambda pair: pair[1].lower(),
    )


def _flat(values: Mapping[str, Any], prefix: str = "", depth: int = DEPTH) -> Iterator[Any]:
    """Flatten nested mappings to dotted names; a list stays one value."""
    for name, value in values.items():
        if isinstance(value, Mapping) and value and depth > 1:
            yield from _flat(value, f"{prefix}{name}.", depth - 1)
        else:
            yield f"{prefix}{name}", value


def _changed(
    model: type[Model] | None, name: str, before: Mapping[str, Any], after: Mapping[str, Any]
) -> ChangedField:
    old, new = before.get(name), after.get(name)
    known = _field_of(model, name)
    old_text, new_text = _text(known, old), _text(known, new)
    if name not in before:
        change: Change = "added"
    elif name not in after:
        change = "removed"
    else:
        change = "same" if old == new else "changed"
    long = any("\n" in version or len(version) > LONG_TEXT for version in (old_text, new_text))
    both = name in before and name in after
    return ChangedField(
        name=name,
        label=_label(known, name),
        change=change,
        before=old,
        after=new,
        before_text=old_text,
        after_text=new_text,
        lines=_lines(old_text, new_text) if long and both and change == "changed" else [],
    )


def _field_of(model: type[Model] | None, name: str) -> Field[Any, Any] | None:
    if model is None:
        return None
    try:
        field = model._meta.get_field(name.removesuffix("_id"))
    except FieldDoesNotExist:
        return None
    return field if isinstance(field, Field) else None


def _label(known: Field[Any, Any] | None, name: str) -> str:
    return str(known.verbose_name) if known is not None else name


def _text(known: Field[Any, Any] | None, value: Any) -> str:
    if value is None or value == "":
        return NOTHING
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    if isinstance(value, str):
        moment = parse_datetime(value) if isinstance(known, DateTimeField) else None
        if moment is not None:
            shown = timezone.localtime(moment) if timezone.is_aware(moment) else moment
            return date_format(shown, "Y-m-d H:i:s")
        words = dict(known.flatchoices).get(value) if known is not None else None
        return str(words) if words else value
    if isinstance(value, int | float):
        return str(value)
    return json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True)


def _lines(old: str, new: str) -> list[DiffLine]:
    lines: list[DiffLine] = []
    for line in difflib.unified_diff(old.splitlines(), new.splitlines(), n=2, lineterm=""):
        if line.startswith(("---", "+++")) and not lines:
            continue
        lines.append(DiffLine(line[0], line if line[0] == "@" else line[1:]))
        if len(lines) > SHOWN_LINES:
            return [*lines[:SHOWN_LINES], DiffLine("@", "…")]
    return lines
