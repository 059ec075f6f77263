"""Live examples of key and segment rules, shown beside the frontier form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from apps.seeds.admin.fields import parameters_of
from apps.seeds.admin.moments import begins, lasting, next_segment
from apps.seeds.engine.errors import BadSeed, InvalidFrontierSetting
from apps.seeds.engine.keys import key_resolver
from apps.seeds.engine.rules import FrontierRules
from apps.seeds.engine.seeds import DEFAULT_SEGMENT, Seed
from apps.seeds.engine.segments import segment_resolver, time_zone
from apps.seeds.models.frontier import validate_parameters

MOST_TYPED: Final = 4000
# URLs that some key rules treat as the same page.
EXAMPLES: Final = (
    "https://Example.com/list?b=2&a=1&callback=jQuery17",
    "https://example.com/list?a=1&b=2#comments",
    "https://example.com/list?a=1&b=2",
)


@dataclass(frozen=True, slots=True)
class Example:
    """URL and its key; ``same``: the key of an earlier URL in the list is equal."""

    data: str
    key: str
    same: bool
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Hint:
    """Text of the live example."""

    lines: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    examples: list[Example] = field(default_factory=list)


def hint_of(typed: Mapping[str, str], now: int) -> Hint:
    """Return the example for the form's current, unvalidated values. ``now``: ms since 1970."""
    hint = Hint()
    values = {name: text[:MOST_TYPED] for name, text in typed.items()}
    _segments(hint, values, now)
    _keys(hint, values)
    return hint


def _segments(hint: Hint, typed: Mapping[str, str], now: int) -> None:
    try:
        zone = time_zone(typed.get("time_zone", "").strip())
        resolver = segment_resolver(typed.get("segments", "").strip(), zone)
        current = resolver(now)
        after = next_segment(resolver, now)
    except InvalidFrontierSetting as error:
        hint.problems.append(str(error))
        return
    except Exception as error:  # noqa: BLE001 - a plug-in may raise anything
        hint.problems.append(f"{type(error).__name__}: {error}")
        return
    if current == DEFAULT_SEGMENT and after is None:
        hint.lines.append(_("All seeds are in one segment: each URL is crawled only once."))
        return
    hint.lines.append(
        _("A seed due now goes to the segment that began %(moment)s (%(zone)s).")
        % {"moment": begins(current, zone), "zone": zone.key}
    )
    if after is not None:
        hint.lines.append(
            _(
                "The next segment begins %(moment)s (in %(time)s). Then the same URL can be "
                "crawled again."
            )
            % {"moment": begins(after, zone), "time": lasting((after - now) / 1000)}
        )
    hint.lines.append(
        _("A seed without a time goes to the default segment and is crawled only once.")
    )


def _keys(hint: Hint, typed: Mapping[str, str]) -> None:
    try:
        rules = FrontierRules(keys=key_resolver(typed.get("keys", "").strip(), _parameters(typed)))
    except InvalidFrontierSetting as error:
        hint.problems.append(str(error))
        return
    own = typed.get("example", "").strip()
    seen: dict[str, str] = {}
    for data in [own] if own else EXAMPLES:
        try:
            key = rules.resolve(Seed(data)).key
        except BadSeed as error:
            hint.examples.append(Example(data, "", same=False, problem=str(error)))
            continue
        hint.examples.append(Example(data, key, same=key in seen))
        seen[key] = data


def _parameters(typed: Mapping[str, str]) -> list[str] | None:
    """Return the ignored parameters as entered. Raises ``InvalidFrontierSetting``."""
    names = parameters_of(typed.get("ignored_parameters", ""))
    try:
        validate_parameters(names)
    except ValidationError as error:
        raise InvalidFrontierSetting(" ".join(error.messages)) from error
    return names
