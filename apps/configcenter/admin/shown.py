"""Texts of differences, kinds and roll-outs, shared by the admin pages."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from django.utils.translation import gettext as _

from apps.configcenter.engine.diffs import ChangeKind, DataChange
from apps.configcenter.queries import RolloutCount
from apps.configcenter.services import ConfigKind, all_kinds

SHOWN_CHANGES: Final = 300
SHOWN_VALUE: Final = 2_000
MEDIA: Final = ["dashboard/dashboard.css", "configcenter/configcenter.css"]


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """One difference, formatted for a page."""

    place: str
    what: str
    mark: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class VersionDifference:
    """Differences for a page; ``more`` is the number that were left out."""

    rows: tuple[ChangeRow, ...]
    more: int


def difference(changes: Iterable[DataChange]) -> VersionDifference:
    """Format the first differences: values are indented and truncated."""
    listed = list(changes)
    marks = dict(zip(ChangeKind, "+−~↕", strict=True))
    rows = tuple(
        ChangeRow(
            change.place,
            change.what.value,
            marks[change.what],
            "" if change.what is ChangeKind.ADDED else _pretty(change.before),
            "" if change.what is ChangeKind.REMOVED else _pretty(change.after),
        )
        for change in listed[:SHOWN_CHANGES]
    )
    return VersionDifference(rows, len(listed) - len(rows))


def kind_title(name: str) -> str:
    """The title of a kind; its bare name when no app has it any more."""
    return next((str(kind.title) for kind in all_kinds() if kind.name == name), name)


def text_of(kind: ConfigKind, data: dict[str, Any]) -> str:
    """Text form of the data; JSON if the kind cannot serialize it any more."""
    try:
        return kind.write(data)
    except (ValueError, TypeError, KeyError):
        return json.dumps(data, ensure_ascii=False, indent=2)


def rollout_text(rollout: RolloutCount) -> str:
    """Format a roll-out: ``7 of 8 on v42``."""
    if not rollout.of:
        return "–"
    numbers = {"on": rollout.on, "of": rollout.of, "number": rollout.active}
    if not rollout.active:
        return _("%(on)d of %(of)d run no version") % numbers
    return _("%(on)d of %(of)d on v%(number)d") % numbers


def _pretty(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=2)
    return text if len(text) <= SHOWN_VALUE else text[:SHOWN_VALUE] + "…"
