"""Validation of single values in a configuration of alert rules."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from apps.alerts.engine.rules import SEVERITIES
from apps.configcenter.engine.kinds import DataProblem
from yardkit.names import SLUG

MAX_CHANNELS: Final = 20
# A user as recipient, with the characters of user names.
_PERSON: Final = re.compile(r"@[\w.@+-]{1,150}")
DAY: Final = 86_400.0
_SPANS: Final = {
    "absent_seconds": (10.0, 7 * DAY),
    "in_seconds": (1.0, DAY),
    "for_seconds": (0.0, DAY),
    "quiet_seconds": (60.0, 30 * DAY),
    "repeat_seconds": (60.0, 30 * DAY),
    "after_seconds": (1.0, 7 * DAY),
}


def bad_severity(place: str, entry: Mapping[str, Any]) -> Iterator[DataProblem]:
    """Yield a problem if the severity is unknown."""
    if "severity" in entry and entry["severity"] not in SEVERITIES:
        yield DataProblem(place, "bad_value", f"one of: {', '.join(SEVERITIES)}")


def bad_channels(place: str, names: object) -> Iterator[DataProblem]:
    """Yield problems of a list of channel names."""
    if names is None:
        return
    if not isinstance(names, list) or len(names) > MAX_CHANNELS:
        yield DataProblem(
            place, "not_a_list", f"a list of at most {MAX_CHANNELS} names of channels"
        )
        return
    for number, name in enumerate(names):
        if not isinstance(name, str) or not (SLUG.fullmatch(name) or _PERSON.fullmatch(name)):
            text = (
                "use lower-case letters, digits, '-' and '_', a letter first, at most 64; "
                "or @ and the name of a user"
            )
            yield DataProblem(f"{place}[{number}]", "bad_name", text)


def bad_subset(place: str, values: object, allowed: tuple[str, ...]) -> Iterator[DataProblem]:
    """Yield a problem unless the value is a list of ``allowed`` values."""
    if values is None:
        return
    if not isinstance(values, list) or any(value not in allowed for value in values):
        yield DataProblem(place, "bad_value", f"a list of some of: {', '.join(allowed)}")


def bad_span(place: str, entry: Mapping[str, Any], name: str) -> Iterator[DataProblem]:
    """Yield a problem unless the number of seconds is in its range."""
    if name not in entry:
        return
    least, most = _SPANS[name]
    if not is_number(entry[name]) or not least <= entry[name] <= most:
        yield DataProblem(f"{place}.{name}", "out_of_range", f"seconds, from {least:g} to {most:g}")


def unknown_names(
    place: str, entry: Mapping[str, Any], allowed: Iterable[str]
) -> Iterator[DataProblem]:
    """Yield a problem for each unknown name: a typo would otherwise disable a rule silently."""
    allowed = list(allowed)
    for key in entry:
        if key not in allowed:
            near = difflib.get_close_matches(str(key), allowed, n=1)
            meant = f"; did you mean {near[0]}?" if near else f"; there are: {', '.join(allowed)}"
            where = f"{place}.{key}" if place else str(key)
            yield DataProblem(where[:200], "unknown", f"unknown name{meant}")


def no_quiet(place: str, name: str, known: Iterable[str]) -> DataProblem:
    """Return the problem that these quiet hours do not exist."""
    names = ", ".join(sorted(map(str, known))) or "none"
    text = f"unknown quiet hours {name[:64]!r}; known: {names}"
    return DataProblem(place, "unknown", text)


def is_number(value: object) -> bool:
    """Return whether the value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_mapping(value: object) -> bool:
    return isinstance(value, dict)
