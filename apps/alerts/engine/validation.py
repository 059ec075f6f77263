"""Validation of a configuration of alert rules."""

from __future__ import annotations

import difflib
import re
import zoneinfo
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from apps.alerts.engine.events import all_sources, find_source
from apps.alerts.engine.quiet import DAYS
from apps.alerts.engine.rules import SEVERITIES, find_builtin
from apps.alerts.engine.values import (
    bad_channels,
    bad_severity,
    bad_span,
    bad_subset,
    is_mapping,
    is_number,
    no_quiet,
    unknown_names,
)
from apps.configcenter.engine.kinds import DataProblem
from yardkit.names import SERIES

MAX_RULES: Final = 500
MAX_NAME: Final = 64
MAX_ESCALATIONS: Final = 10
_TOP: Final = ("rules", "quiet_hours", "defaults")
_RULE: Final = (
    *("name", "series", "event", "label", "match", "when", "recover", "severity", "tell"),
    *("escalate", "repeat_seconds", "quiet", "enabled", "description"),
)
# A rule over a series sets exactly one of these.
LIMITS: Final = ("above", "below", "absent_seconds", "rises_by", "falls_by")
_QUIET: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_CLOCK: Final = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])")


def problems(data: Mapping[str, Any]) -> Iterator[DataProblem]:
    """Yield every problem of a configuration with its place; warnings are marked."""
    yield from unknown_names("", data, _TOP)
    yield from _defaults(data.get("defaults"))
    hours = data.get("quiet_hours")
    yield from _quiet_hours(hours)
    known = set(hours) if isinstance(hours, dict) else set()
    rules = data.get("rules", [])
    if not isinstance(rules, list):
        yield DataProblem("rules", "not_a_list", "expected a list of rules")
    elif len(rules) > MAX_RULES:
        yield DataProblem("rules", "too_many", f"at most {MAX_RULES} rules")
    else:
        yield from _rules(rules, known)
    quiet = (data.get("defaults") or {}).get("quiet") if is_mapping(data.get("defaults")) else None
    if quiet and quiet not in known:
        yield no_quiet("defaults.quiet", str(quiet), known)


def rule_problems(entry: object, known_quiet: Iterable[str] = ()) -> list[DataProblem]:
    """Return the problems of a single rule, for a form or a preview."""
    return list(_rule("rule", entry, set(known_quiet)))


# --- a rule ------------------------------------------------------------------------------------


def _rules(rules: list[Any], known_quiet: set[str]) -> Iterator[DataProblem]:
    first: dict[str, int] = {}
    for number, entry in enumerate(rules):
        place = f"rules[{number}]"
        yield from _rule(place, entry, known_quiet)
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str):
            continue
        if name in first:
            text = f"rules[{first[name]}] has the same name"
            yield DataProblem(f"{place}.name", "twice", text)
        first.setdefault(name, number)


def _rule(place: str, entry: object, known_quiet: set[str]) -> Iterator[DataProblem]:
    if not isinstance(entry, dict):
        yield DataProblem(place, "not_a_mapping", "expected a mapping")
        return
    yield from unknown_names(place, entry, _RULE)
    yield from _name(f"{place}.name", entry.get("name"))
    yield from _watched(place, entry)
    yield from bad_severity(f"{place}.severity", entry)
    yield from bad_channels(f"{place}.tell", entry.get("tell"))
    yield from bad_span(place, entry, "repeat_seconds")
    yield from _escalate(f"{place}.escalate", entry.get("escalate"))
    if not isinstance(entry.get("enabled", True), bool):
        yield DataProblem(f"{place}.enabled", "bad_value", "true or false")
    description = entry.get("description", "")
    if not isinstance(description, str) or len(description) > 500:
        yield DataProblem(f"{place}.description", "bad_value", "a text of at most 500 characters")
    quiet = entry.get("quiet", "")
    if quiet and (not isinstance(quiet, str) or quiet not in known_quiet):
        yield no_quiet(f"{place}.quiet", str(quiet), known_quiet)


def _name(place: str, name: object) -> Iterator[DataProblem]:
    if not isinstance(name, str) or not name.strip():
        yield DataProblem(place, "missing", "every rule needs a name")
    elif len(name) > MAX_NAME or name != name.strip() or not name.isprintable():
        text = f"at most {MAX_NAME} characters in one line, no space at either end"
        yield DataProblem(place, "bad_name", text)


def _watched(place: str, entry: Mapping[str, Any]) -> Iterator[DataProblem]:
    """Validate what the rule watches and its condition."""
    series, event = entry.get("series"), entry.get("event")
    base = find_builtin(entry["name"]) if isinstance(entry.get("name"), str) else None
    if series is not None and event is not None:
        yield DataProblem(place, "two_sources", "either series or event, not both")
        return
    if series is None and event is None and base is None:
        text = "either series or event is required"
        if entry.get("enabled") is False and is_mapping(entry) and len(entry) <= 2:
            # A project may disable a platform rule, whose names are unknown here.
            return
        yield DataProblem(place, "missing", text)
        return
    if event is not None and (not isinstance(event, str) or find_source(event) is None):
        names = [source.name for source in all_sources()]
        near = difflib.get_close_matches(str(event), names, n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        yield DataProblem(f"{place}.event", "unknown", f"unknown event {str(event)!r}{meant}"[:300])
        return
    if series is not None and not (isinstance(series, str) and SERIES.fullmatch(series)):
        yield DataProblem(
            f"{place}.series", "bad_value", "the name of a series, such as queue.ready"
        )
        return
    if base is not None and series is None and event is None:
        series, event = base.series or None, base.event or None
        if "when" not in entry:
            yield from _recover(f"{place}.recover", entry.get("recover"), _kind(series, event))
            yield from _patterns(place, entry, str(event or ""))
            return
    kind = _kind(series, event)
    yield from _when(f"{place}.when", entry.get("when", {}), kind)
    yield from _recover(f"{place}.recover", entry.get("recover"), kind)
    yield from _hysteresis(place, entry)
    yield from _patterns(place, entry, str(event or ""))


def _kind(series: object, event: object) -> str:
    if series:
        return "series"
    source = find_source(str(event))
    return "event" if hasattr(source, "since") else "condition"


def _patterns(place: str, entry: Mapping[str, Any], event: str) -> Iterator[DataProblem]:
    if "label" in entry:
        if event:
            yield DataProblem(
                f"{place}.label", "not_here", "label applies to series; use match for events"
            )
        elif not isinstance(entry["label"], str) or len(entry["label"]) > 200:
            yield DataProblem(f"{place}.label", "bad_value", "a text with * and ?")
    if "match" not in entry:
        return
    if not event:
        yield DataProblem(
            f"{place}.match", "not_here", "match applies to events; use label for series"
        )
        return
    match = entry["match"]
    if not is_mapping(match):
        yield DataProblem(f"{place}.match", "not_a_mapping", "expected a mapping")
        return
    source = find_source(event)
    facts = source.facts if source is not None else ()
    for name, pattern in match.items():
        if name not in facts:
            text = f"{event} has no such fact; it has: {', '.join(facts) or 'none'}"
            yield DataProblem(f"{place}.match.{name}"[:100], "unknown", text)
        elif not isinstance(pattern, str | int | float) or len(str(pattern)) > 200:
            yield DataProblem(f"{place}.match.{name}", "bad_value", "a text with * and ?")


def _when(place: str, when: object, kind: str) -> Iterator[DataProblem]:
    if not isinstance(when, dict):
        yield DataProblem(place, "not_a_mapping", "expected a mapping")
        return
    allowed = {
        "series": (*LIMITS, "in_seconds", "for_seconds"),
        "event": ("times", "in_seconds"),
        "condition": ("for_seconds",),
    }[kind]
    yield from unknown_names(place, when, allowed)
    for name in ("above", "below"):
        if name in when and not is_number(when[name]):
            yield DataProblem(f"{place}.{name}", "bad_value", "expected a number")
    for name in ("rises_by", "falls_by"):
        if name in when and not (is_number(when[name]) and when[name] > 0):
            yield DataProblem(f"{place}.{name}", "bad_value", "expected a number above 0")
    for name in ("absent_seconds", "in_seconds", "for_seconds"):
        yield from bad_span(place, when, name)
    if kind == "series":
        yield from _one_limit(place, when)
    times = when.get("times", 1)
    if not isinstance(times, int) or isinstance(times, bool) or not 1 <= times <= 10_000:
        yield DataProblem(f"{place}.times", "out_of_range", "a whole number from 1 to 10000")
    elif kind == "event" and times > 1 and "in_seconds" not in when:
        yield DataProblem(
            f"{place}.in_seconds", "missing", "required with times: the window in seconds"
        )


def _one_limit(place: str, when: Mapping[str, Any]) -> Iterator[DataProblem]:
    limits = [name for name in LIMITS if name in when]
    if len(limits) != 1:
        text = f"exactly one is required of {', '.join(LIMITS)}"
        yield DataProblem(place, "one_limit", text)
        return
    changes = limits[0] in ("rises_by", "falls_by")
    if changes and "in_seconds" not in when:
        yield DataProblem(f"{place}.in_seconds", "missing", "required: the window in seconds")
    if not changes and "in_seconds" in when:
        yield DataProblem(f"{place}.in_seconds", "not_here", "only with rises_by and falls_by")
    if limits[0] not in ("above", "below") and "for_seconds" in when:
        yield DataProblem(f"{place}.for_seconds", "not_here", "only with above and below")


def _recover(place: str, recover: object, kind: str) -> Iterator[DataProblem]:
    if recover is None:
        return
    if not isinstance(recover, dict):
        yield DataProblem(place, "not_a_mapping", "expected a mapping")
        return
    allowed = {
        "series": ("below", "above", "for_seconds"),
        "event": ("quiet_seconds",),
        "condition": (),
    }[kind]
    yield from unknown_names(place, recover, allowed)
    for name in ("above", "below"):
        if name in recover and not is_number(recover[name]):
            yield DataProblem(f"{place}.{name}", "bad_value", "expected a number")
    for name in ("for_seconds", "quiet_seconds"):
        yield from bad_span(place, recover, name)


def _hysteresis(place: str, entry: Mapping[str, Any]) -> Iterator[DataProblem]:
    """Check that the recovery threshold lies on the good side of the limit."""
    when, recover = entry.get("when"), entry.get("recover")
    if not isinstance(when, dict) or not isinstance(recover, dict):
        return
    for limit, back, sign, text in (
        ("above", "below", 1.0, "not higher than when.above"),
        ("below", "above", -1.0, "not lower than when.below"),
    ):
        if back not in recover:
            continue
        hysteresis_place = f"{place}.recover.{back}"
        if limit not in when:
            yield DataProblem(hysteresis_place, "not_here", f"requires when.{limit}")
        elif (
            is_number(recover[back])
            and is_number(when[limit])
            and sign * recover[back] > sign * when[limit]
        ):
            yield DataProblem(hysteresis_place, "out_of_range", text)


def _escalate(place: str, steps: object) -> Iterator[DataProblem]:
    if steps is None:
        return
    if not isinstance(steps, list) or len(steps) > MAX_ESCALATIONS:
        yield DataProblem(place, "not_a_list", f"a list of at most {MAX_ESCALATIONS} steps")
        return
    last = 0.0
    for number, step in enumerate(steps):
        step_place = f"{place}[{number}]"
        if not isinstance(step, dict):
            yield DataProblem(step_place, "not_a_mapping", "expected a mapping")
            continue
        yield from unknown_names(step_place, step, ("after_seconds", "tell", "severity"))
        if "after_seconds" not in step:
            yield DataProblem(
                f"{step_place}.after_seconds", "missing", "required: a number of seconds"
            )
        yield from bad_span(step_place, step, "after_seconds")
        yield from bad_channels(f"{step_place}.tell", step.get("tell"))
        yield from bad_severity(f"{step_place}.severity", step)
        after: Any = step.get("after_seconds")
        if is_number(after):
            if after <= last:
                text = "must be later than the previous step"
                yield DataProblem(f"{step_place}.after_seconds", "out_of_range", text)
            last = float(after)


# --- the rest ----------------------------------------------------------------------------------


def _defaults(defaults: object) -> Iterator[DataProblem]:
    if defaults is None:
        return
    if not isinstance(defaults, dict):
        yield DataProblem("defaults", "not_a_mapping", "expected a mapping")
        return
    yield from unknown_names("defaults", defaults, ("tell", "repeat_seconds", "quiet"))
    yield from bad_channels("defaults.tell", defaults.get("tell"))
    yield from bad_span("defaults", defaults, "repeat_seconds")
    if not isinstance(defaults.get("quiet", ""), str):
        yield DataProblem("defaults.quiet", "bad_value", "the name of quiet hours")


def _quiet_hours(hours: object) -> Iterator[DataProblem]:
    if hours is None:
        return
    if not isinstance(hours, dict):
        yield DataProblem("quiet_hours", "not_a_mapping", "expected names and hours")
        return
    for name, entry in hours.items():
        place = f"quiet_hours.{name}"[:100]
        if not _QUIET.fullmatch(str(name)):
            yield DataProblem(place, "bad_name", "letters, digits, '-' and '_', a letter first")
        if not isinstance(entry, dict):
            yield DataProblem(place, "not_a_mapping", "expected a mapping")
            continue
        yield from unknown_names(place, entry, ("from", "to", "days", "time_zone", "except"))
        for edge in ("from", "to"):
            if not isinstance(entry.get(edge), str) or not _CLOCK.fullmatch(entry[edge]):
                text = 'a time is needed, in quotes, such as "22:00"'
                yield DataProblem(f"{place}.{edge}", "bad_value", text)
        yield from bad_subset(f"{place}.days", entry.get("days"), DAYS)
        yield from bad_subset(f"{place}.except", entry.get("except"), SEVERITIES)
        zone = entry.get("time_zone", "UTC")
        if not isinstance(zone, str) or zone not in zoneinfo.available_timezones():
            text = "unknown time zone; use a name such as Asia/Shanghai"
            yield DataProblem(f"{place}.time_zone", "bad_value", text)
