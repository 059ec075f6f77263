"""What both admins show alike: changes, kinds, who runs what."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from django.utils.translation import gettext as _

from apps.configcenter.engine.diffs import DataChange, What
from apps.configcenter.queries import RolloutCount
from apps.configcenter.services import ConfigKind, all_kinds

SHOWN_CHANGES: Final = 300
SHOWN_VALUE: Final = 2_000
MEDIA: Final = ["dashboard/dashboard.css", "configcenter/configcenter.css"]


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """One change, as the page shows it."""

    place: str
    what: str
    mark: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class VersionDifference:
    """Changes for a page; ``more`` were left off."""

    rows: tuple[ChangeRow, ...]
    more: int


def difference(changes: Iterable[DataChange]) -> VersionDifference:
    """The first of them, values indented and cut."""
    found = list(changes)
    marks = {What.ADDED: "+", What.REMOVED: "−", What.CHANGED: "~", What.MOVED: "↕"}
    rows = tuple(
        ChangeRow(
            each.place,
            each.what.value,
            marks[each.what],
            "" if each.what is What.ADDED else _pretty(each.before),
            "" if each.what is What.REMOVED else _pretty(each.after),
        )
        for each in found[:SHOWN_CHANGES]
    )
    return VersionDifference(rows, len(found) - len(rows))


def kind_title(name: str) -> str:
    """The title of a kind; its bare name when no app has it any more."""
    return next((str(kind.title) for kind in all_kinds() if kind.name == name), name)


def text_of(kind: ConfigKind, data: dict[str, Any]) -> str:
    """The text form; JSON where the kind cannot write what it once took."""
    try:
        return kind.write(data)
    except (ValueError, TypeError, KeyError):
        return json.dumps(data, ensure_ascii=False, indent=2)


def tally_text(tally: RolloutCount) -> str:
    """``7 of 8 on v42``."""
    if not tally.of:
        return "–"
    numbers = {"on": tally.on, "of": tally.of, "number": tally.active}
    if not tally.active:
        return _("%(on)d of %(of)d run none") % numbers
    return _("%(on)d of %(of)d on v%(number)d") % numbers


def _pretty(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=2)
    return text if len(text) <= SHOWN_VALUE else text[:SHOWN_VALUE] + "…"
